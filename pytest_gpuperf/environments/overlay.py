"""The packages that one side of a comparison has in place of those of the user."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import distribution
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from ..errors import ErrorId
from ..errors import UsageError
from .cache import PackageCache
from .installers import Installer
from .installers import installer
from .lock_files import differing
from .lock_files import installed
from .lock_files import pins_of
from .packages import Overlay


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
    rest = Overlay(
        hidden=tuple(name for each in change.without for name in _modules(each)),
        without=tuple(map(canonicalize_name, change.without)),
        changes=tuple(_gone(change)),
    )
    if not change.requirements:
        return rest
    program = program or installer()
    packages = (
        change.requirements if change.pins else program.needs(change.requirements)
    )
    if not packages:
        return rest

    def install(folder: Path) -> None:
        announce(f"installing {' '.join(packages)}")
        program.install(packages, folder / SITE_PACKAGES)

    folder = cache.folder([*map(_with_content, packages)], install)
    changes = (*_replaced(packages), *rest.changes)
    return replace(rest, path=(str(folder / SITE_PACKAGES),), changes=changes)


SITE_PACKAGES: Final = "site-packages"
"""What is below a folder of this name is no code of the user."""


FILE_URL: Final = " @ file://"


def _with_content(package: str) -> str:
    """Name what a *package* that is a path has in it: it may be another one tomorrow."""
    _, is_file, path = package.partition(FILE_URL)
    if not is_file:
        return package
    digest = hashlib.sha256()
    for file in _files(Path(path)):
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
    """Return what can be imported of *package*."""
    try:
        distribution(package)
    except PackageNotFoundError:
        msg = f"--without={package}: no such package is installed"
        raise UsageError(msg, ErrorId.GP719) from None
    wanted = canonicalize_name(package)
    return tuple(
        module
        for module, owners in packages_distributions().items()
        if any(canonicalize_name(owner) == wanted for owner in owners)
    )


def _replaced(packages: Sequence[str]) -> Iterator[str]:
    here = installed()
    for package in packages:
        name, _, version = package.partition("==")
        before = here.get(canonicalize_name(name.partition(" @ ")[0]))
        path = package.partition(FILE_URL)[2]
        yield f"{name.partition(' @ ')[0]} {before or 'none'} -> {version or path}"


def _gone(change: PackageChange) -> Iterator[str]:
    here = installed()
    for name in change.without:
        yield f"{name} {here.get(canonicalize_name(name), '')} -> none"
