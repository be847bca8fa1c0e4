"""The packages that one side of a comparison has in place of those of the user."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..errors import ErrorId
from ..errors import UsageError
from ..model.environment import AS_INSTALLED
from ..model.environment import Overlay
from .cache import PackageCache
from .installers import Installer
from .installers import installer
from .lock_files import differing
from .lock_files import installed
from .lock_files import pins_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """What is asked for: ``requirements`` as an installer takes them.

    What they need comes too, unless they are ``pins`` of a lock file, which names all.
    ``without`` are packages that nothing can import.
    """

    requirements: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    pins: bool = False

    @classmethod
    def to_lock(cls, file: Path) -> PackageChange:
        """Return the change from what is installed to what *file* pins."""
        return cls(requirements=differing(pins_of(file), installed()), pins=True)


def overlay(
    change: PackageChange,
    cache: PackageCache,
    announce: Callable[[str], None],
    program: Installer | None = None,
) -> Overlay:
    """Install what *change* asks for, if *cache* has it not yet; return where it is.

    Raises ``UsageError`` if it cannot be installed, or names what is not here.
    """
    if change == PackageChange():
        return AS_INSTALLED
    packages: Sequence[str] = ()
    path: tuple[str, ...] = ()
    if change.requirements:
        program = program or installer()
        packages = (
            change.requirements if change.pins else program.needs(change.requirements)
        )
    if program and packages:
        path = (str(_folder(packages, cache, announce, program)),)
    return overlay_at(path, packages, change.without)


def overlay_at(
    path: tuple[str, ...], packages: Sequence[str], without: Sequence[str]
) -> Overlay:
    """Return *path* with what is said of its *packages*, and what it is *without*.

    Raises ``UsageError`` if the latter is not installed.
    """
    return Overlay(
        path=path,
        hidden=tuple(name for each in without for name in _modules(each)),
        without=tuple(map(canonicalize_name, without)),
        changes=tuple(_changes(packages, without)),
    )


SITE_PACKAGES: Final = "site-packages"
"""What is below a folder of this name is no code of the user."""


def _folder(
    packages: Sequence[str],
    cache: PackageCache,
    announce: Callable[[str], None],
    program: Installer,
) -> Path:
    """Return the folder to import *packages* from."""

    def install(folder: Path) -> None:
        announce(f"installing {' '.join(packages)}")
        program.install(packages, folder / SITE_PACKAGES)

    return cache.folder([*map(with_content, packages)], install) / SITE_PACKAGES


FILE: Final = "file://"


def with_content(package: str) -> str:
    """Name what a *package* that is a path has in it: it may be another one tomorrow."""
    url = Requirement(package).url or ""
    if not url.startswith(FILE):
        return package
    digest = hashlib.sha256()
    for file in _files(Path(unquote(url.removeprefix(FILE)))):
        digest.update(str(file).encode())
        digest.update(file.read_bytes())
    return f"{package}#{digest.hexdigest()}"


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path).parts
        if file.is_file() and not any(_is_no_source(part) for part in inside):
            yield file


def _is_no_source(part: str) -> bool:
    return part.startswith(".") or part in {"__pycache__", "build", "dist"}


def _modules(package: str) -> tuple[str, ...]:
    """Return what can be imported of *package*, and of no other one."""
    wanted = canonicalize_name(package)
    if wanted not in installed():
        msg = f"--without={package}: no such package is installed"
        raise UsageError(msg, ErrorId.GP719)
    owners = {
        module: {*map(canonicalize_name, names)}
        for module, names in packages_distributions().items()
    }
    found = [module for module, names in owners.items() if names == {wanted}]
    # Before Python 3.11 those are missing that name no modules in a file of their own.
    found = found or [name for name in _tops(package) if name not in owners]
    if not found:
        msg = f"--without={package}: found no module that this package alone has"
        raise UsageError(msg, ErrorId.GP719)
    return tuple(found)


def _tops(package: str) -> Iterator[str]:
    """Yield the names below which *package* has Python files."""
    for file in distribution(package).files or ():
        top = file.parts[0].removesuffix(".py")
        if file.suffix == ".py" and top.isidentifier():
            yield top


def _changes(packages: Sequence[str], without: Sequence[str]) -> Iterator[str]:
    """Say what each package was and is, and those that a side is without."""
    here = installed()
    for package in map(Requirement, packages):
        before = here.get(canonicalize_name(package.name), "none")
        path = (package.url or "").removeprefix(FILE)
        yield f"{package.name} {before} -> {path or str(package.specifier)[2:]}"
    for name in without:
        yield f"{name} {here[canonicalize_name(name)]} -> none"
