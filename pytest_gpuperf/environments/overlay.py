"""The packages that one side of a comparison has in place of those of the user."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import ErrorId, UsageError
from ..model.environment import Overlay
from .lock_files import differing, installed, pins_of


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


FILE: Final = "file://"

SITE_PACKAGES: Final = "site-packages"
"""What is below a folder of this name is no code of the user."""


class Packages:
    """Installs packages into folders below *place*, the same ones once."""

    def __init__(
        self,
        place: str,
        announce: Callable[[str], None],
        program: Uv | Pip | None = None,
    ) -> None:
        self._place, self._announce, self._program = place, announce, program
        self._folders: dict[frozenset[str], str] = {}

    def overlay(self, change: PackageChange) -> Overlay:
        """Install what *change* asks for, and return where it is.

        Raises ``UsageError`` if it cannot be installed, or names what is not here.
        """
        packages = self._needed(change) if change.requirements else ()
        return Overlay(
            path=(self._folder(packages),) if packages else (),
            hidden=tuple(name for each in change.without for name in _modules(each)),
            without=tuple(map(canonicalize_name, change.without)),
            changes=tuple(_changes(packages, change.without)),
        )

    def _needed(self, change: PackageChange) -> Sequence[str]:
        self._program = self._program or installer()
        if change.pins:
            return change.requirements
        return self._program.needs(change.requirements)

    def _folder(self, packages: Sequence[str]) -> str:
        """Return the folder to import *packages* from."""
        key = frozenset(packages)
        if key not in self._folders:
            self._announce(f"installing {' '.join(packages)}")
            folder = Path(mkdtemp(dir=self._place), SITE_PACKAGES)
            (self._program or installer()).install(packages, folder)
            self._folders[key] = str(folder)
        return self._folders[key]


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


# uv and pip: which packages a change needs, and their files in a folder.


def installer() -> Uv | Pip:
    """Return uv if it is there, else pip; raise ``UsageError`` without both."""
    uv = shutil.which("uv")
    if uv is not None:
        return Uv(uv)
    if find_spec("pip") is not None:
        return Pip()
    msg = (
        "found neither uv nor pip; expected one of them to install other packages with"
    )
    raise UsageError(msg, ErrorId.GP716)


class Uv:
    """``uv pip``, which reads the present environment and installs elsewhere."""

    ADDED: Final = re.compile(r"^ [+~] (\S+(?: @ \S+)?)", re.MULTILINE)

    def __init__(self, program: str) -> None:
        self._typed = (program, "pip", "install", "--python", sys.executable)

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        """Return the exact packages that *requirements* add to the present environment.

        What it has already is left out. Raises ``UsageError`` if there are none such.
        """
        planned = _run("uv", *self._typed, "--dry-run", "--", *requirements).stderr
        return tuple(sorted(self.ADDED.findall(planned)))

    def install(self, packages: Sequence[str], folder: Path) -> None:
        """Put the files of *packages*, and of nothing else, into *folder*."""
        target = ("--no-deps", "--target", str(folder))
        _run("uv", *self._typed, *target, "--", *packages)


class Pip:
    """The pip of this interpreter."""

    TYPED: Final = (
        *(sys.executable, "-m", "pip", "--disable-pip-version-check"),
        *("install", "--quiet"),
    )

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        report = ("--dry-run", "--report", "-")
        planned = _run("pip", *self.TYPED, *report, "--", *requirements).stdout
        return tuple(sorted(map(_named, json.loads(planned)["install"])))

    def install(self, packages: Sequence[str], folder: Path) -> None:
        target = ("--no-deps", "--target", str(folder))
        _run("pip", *self.TYPED, *target, "--", *packages)


def _named(item: dict[str, dict[str, str]]) -> str:
    """Return what names a package of pip's report, and no other one."""
    name, version = item["metadata"]["name"], item["metadata"]["version"]
    if item["is_direct"]:
        return f"{name} @ {item['download_info']['url']}"
    return f"{name}=={version}"


def _run(program: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run what is called *program*; raise ``UsageError`` with its words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - uv or pip
    if done.returncode:
        msg = f"{program} cannot install that: {last_words(done.stderr)}"
        raise UsageError(msg, ErrorId.GP718)
    return done


ERROR: Final = re.compile(r"^\s*(?:error:|\xd7)\s*(.+?):?$", re.IGNORECASE)
CAUSE: Final = re.compile(r"^\s*(?:cause:|Caused by:|╰─▶)\s*(.+)$")
"""As uv prints them, now and in 2024, and pip its errors."""


def last_words(text: str) -> str:
    """Return the last error that an installer prints, and the last cause it names."""
    lines = text.splitlines()
    errors = [found[1] for line in lines if (found := ERROR.match(line))]
    causes = [found[1] for line in lines if (found := CAUSE.match(line))]
    words = [*errors[-1:], *causes[-1:]] or [line for line in lines if line][-1:]
    return ": ".join(words).rstrip(".") or "it printed nothing"
