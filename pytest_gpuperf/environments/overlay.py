"""The packages that one side of a comparison has in place of those of the user."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distribution
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..errors import ErrorId
from ..errors import UsageError
from ..model.environment import AS_INSTALLED
from ..model.environment import Overlay
from .installers import Installer
from .installers import installer
from .lock_files import differing
from .lock_files import installed
from .lock_files import pins_of


GIB: Final = 2**30

MOST_BYTES: Final = 8 * GIB
"""Two builds of torch with CUDA, and a few hundred small packages."""

UNFINISHED: Final = "new-"
"""How the folders begin that are being filled, or removed."""

LOCK: Final = ".lock"
WHAT_IT_HAS: Final = ".packages"
"""Beside the packages: the lock of who uses them, and what they are called."""


def default_place() -> Path:
    """Return where caches of this user are."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "gpuperf", "packages")


class PackageCache:
    """The folders at a *place*; one that is in use is never removed."""

    def __init__(self, place: Path, most_bytes: int = MOST_BYTES) -> None:
        self._place = place
        self._most_bytes = most_bytes
        self._in_use = ExitStack()

    def close(self) -> None:
        """Let others remove what this process has used."""
        self._in_use.close()

    def folder(self, packages: Sequence[str], install: Callable[[Path], None]) -> Path:
        """Return the folder with *packages*, which *install* fills if there is none."""
        self._place.mkdir(parents=True, exist_ok=True)
        folder = self._place / _key(packages)
        is_new = False
        while not self._is_kept(folder):
            self._fill(folder, packages, install)
            is_new = True
        os.utime(folder)
        if is_new:
            self.trim(self._most_bytes)
        return folder

    def _is_kept(self, folder: Path) -> bool:
        """Whether *folder* is there, and stays as long as this process uses it."""
        with suppress(FileNotFoundError):
            self._in_use.enter_context(_locked(folder, fcntl.LOCK_SH))
        # Who waited for the lock may have waited for its removal.
        return (folder / WHAT_IT_HAS).exists()

    def _fill(
        self, folder: Path, packages: Sequence[str], install: Callable[[Path], None]
    ) -> None:
        # Nobody sees half of it, an interrupt leaves nothing, and what a killed process
        # leaves nobody has locked.
        scratch = Path(mkdtemp(prefix=UNFINISHED, dir=self._place))
        (scratch / LOCK).touch()
        try:
            with _locked(scratch, fcntl.LOCK_EX):
                install(scratch)
                names = " ".join(packages)
                (scratch / WHAT_IT_HAS).write_text(names, encoding="utf-8")
                if not (folder / WHAT_IT_HAS).exists():
                    shutil.rmtree(folder, ignore_errors=True)
                # Another process may have made the same meanwhile.
                with suppress(OSError):
                    scratch.replace(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def kept(self) -> dict[Path, int]:
        """Return the bytes of all folders, those first that were used last."""
        found: dict[Path, tuple[float, int]] = {}
        for folder in (f.parent for f in self._place.glob(f"*/{WHAT_IT_HAS}")):
            # Another process may remove one while it is looked at.
            with suppress(FileNotFoundError):
                sizes = (f.lstat().st_size for f in folder.rglob("*") if f.is_file())
                found[folder] = folder.stat().st_mtime, sum(sizes)
        whole = [each for each in found if not each.name.startswith(UNFINISHED)]
        newest = sorted(whole, key=lambda each: found[each][0], reverse=True)
        return {folder: found[folder][1] for folder in newest}

    def trim(self, most_bytes: int) -> list[int]:
        """Remove what was not used for longest until the rest fits; return what sizes went.

        What processes that were killed have left goes as well.
        """
        for lock in self._place.glob(f"{UNFINISHED}*/{LOCK}"):
            _removed(lock.parent)
        gone, total = [], 0
        for folder, size_bytes in self.kept().items():
            total += size_bytes
            if total > most_bytes and _removed(folder):
                gone.append(size_bytes)
                total -= size_bytes
        return gone


def _key(packages: Sequence[str]) -> str:
    """Name a folder by what decides which files are in it."""
    platform = (sys.implementation.cache_tag, sysconfig.get_platform())
    content = json.dumps([*platform, *sorted(packages)]).encode()
    return hashlib.sha256(content).hexdigest()[:20]


def _removed(folder: Path) -> bool:
    """Remove *folder*, unless somebody uses it."""
    try:
        with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            # Under its own name it is whole or not there, whatever ends this process.
            going = folder.with_name(f"{UNFINISHED}{folder.name}")
            folder.rename(going)
            shutil.rmtree(going)
    except OSError:
        return False
    return True


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, how)
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """What is asked for: ``requirements`` as an installer takes them.

    What they need comes too, unless they are ``pins`` of a lock file, which names all.
    ``without`` are packages that nothing can import.
    """

    requirements: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    pins: bool = False

    def __post_init__(self) -> None:
        for text in self.requirements:
            if not _is_requirement(text):
                msg = f"{text!r} names no package: expected PACKAGE==VERSION, a wheel or a folder"
                raise UsageError(msg, ErrorId.GP718)

    @classmethod
    def to_lock(cls, file: Path) -> PackageChange:
        """Return the change from what is installed to what *file* pins."""
        return cls(requirements=differing(pins_of(file), installed()), pins=True)


def _is_requirement(text: str) -> bool:
    """Whether an installer takes *text* as a package, and not as an option or a list."""
    try:
        return bool(Requirement(text))
    except InvalidRequirement:
        return text[:1] not in {"", "-"} and ("/" in text or Path(text).exists())


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
