"""The packages that one side of a comparison has in place of those of the user.

They are installed into a temporary folder, which comes before the user's packages on
that side's path; what uv and pip download stays in their caches. The user's environment
is only read.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import distribution, distributions, packages_distributions
from importlib.util import find_spec
from itertools import chain, filterfalse
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from .errors import ErrorId, UsageError
from .files import read_regular_text
from .model.environment import Overlay


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """What is asked for: ``requirements`` as an installer takes them.

    What they need comes too, unless they are ``pins`` of a lock file, which names all, or
    a ``part`` of such pins, which must fit together. ``without`` are packages that nothing
    can import.
    """

    requirements: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    pins: bool = False
    part: bool = False

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
        needed = self._program.needs(change.requirements)
        named = set(map(_name, change.requirements if change.part else needed))
        return [each for each in needed if _name(each) in named]

    def _folder(self, packages: Sequence[str]) -> str:
        """Return the folder to import *packages* from."""
        key = frozenset(packages)
        if key not in self._folders:
            self._announce(f"installing {' '.join(packages)}")
            folder = Path(mkdtemp(dir=self._place), SITE_PACKAGES)
            (self._program or installer()).install(packages, folder)
            self._folders[key] = str(folder)
        return self._folders[key]


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


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


# The pins of a lock file, and how they differ from the installed packages.


Pins = Mapping[str, str]
"""The version of each package, by its canonical name."""

UV_LOCK: Final = "uv.lock"

PINNED: Final = "=="


def installed() -> Pins:
    """Return what this interpreter can import now."""
    return {
        canonicalize_name(found.metadata["Name"]): found.version
        for found in reversed([*distributions()])  # the first one on the path counts
        if "Name" in found.metadata  # a folder that an installer has left has none
    }


def pins_of(file: Path) -> Pins:
    """Return what *file* pins for this interpreter: requirements, or a ``uv.lock``.

    Raises ``UsageError`` if it cannot be read, or pins nothing.
    """
    try:
        text = read_regular_text(file)
        found = dict(_of_uv(text) if file.name == UV_LOCK else _of_requirements(text))
    except (OSError, ValueError) as error:
        msg = f"--lock={file}: cannot be read: {error}"
        raise UsageError(msg, ErrorId.GP717) from None
    if not found:
        msg = f"--lock={file}: pins nothing; expected lines like torchmetrics==1.4.0"
        raise UsageError(msg, ErrorId.GP717)
    return found


def _of_requirements(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pins of a requirements file; hashes are on lines of their own."""
    for line in text.replace("\\\n", " ").splitlines():
        wanted = _requirement(line.partition(" #")[0].partition(" --")[0].strip())
        if wanted is None or (wanted.marker and not wanted.marker.evaluate()):
            continue
        for pin in wanted.specifier:
            if pin.operator == PINNED:
                yield canonicalize_name(wanted.name), pin.version


def _requirement(line: str) -> Requirement | None:
    """Return what *line* asks for; nothing if it is an option, a path or a comment."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


def _of_uv(text: str) -> Iterator[tuple[str, str]]:
    """Yield what the locked projects need from an index, for this interpreter.

    Of their extras and groups these are the installed ones: nobody says which were asked for.
    """
    packages = _toml(text).get("package", [])
    here, edges = installed(), deque[dict[str, Any]]()
    for project in filterfalse(_is_of_index, packages):
        edges += project.get("dependencies", [])
        groups = (
            project.get(name, {})
            for name in ("optional-dependencies", "dev-dependencies")
        )
        for edge in chain.from_iterable(
            chain.from_iterable(g.values() for g in groups)
        ):
            if canonicalize_name(edge["name"]) in here:
                edges.append(edge)
    reached: dict[str, str] = {}
    while edges:
        edge = edges.popleft()
        found = next((each for each in packages if _is_meant(edge, each)), None)
        if found is None or edge["name"] in reached or not _is_of_index(found):
            continue
        reached[edge["name"]] = str(found["version"])
        edges += found.get("dependencies", [])
    for name, version in reached.items():
        yield canonicalize_name(name), version


def _is_of_index(package: Mapping[str, Any]) -> bool:
    """Whether it is no project, but was taken from an index."""
    return "registry" in package.get("source", {})


def _is_meant(edge: Mapping[str, Any], package: Mapping[str, Any]) -> bool:
    """Whether *edge* leads to *package* here: a lock is for all platforms."""
    marker = edge.get("marker")
    return (
        edge["name"] == package["name"]
        and edge.get("version", package.get("version")) == package.get("version")
        and (marker is None or Marker(marker).evaluate({"extra": ""}))
    )


def _toml(text: str) -> dict[str, Any]:
    # Before Python 3.11 pytest brings the same module under another name.
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    found: dict[str, Any] = import_module(name).loads(text)
    return found


def differing(pins: Pins, here: Pins) -> tuple[str, ...]:
    """Return the requirements of *pins* that the packages *here* do not meet."""
    before, _ = changed(pins, here)
    return tuple(f"{name}{PINNED}{version}" for name, version in before.items())


def changed(pins: Pins, here: Pins) -> tuple[Pins, Pins]:
    """Return the packages that differ: as *pins* have them, and as they are *here*."""
    before = {n: v for n, v in sorted(pins.items()) if not _is_met(v, here.get(n))}
    return before, {name: here[name] for name in before if name in here}


def _is_met(version: str, found: str | None) -> bool:
    """Whether *found* is what a pin of *version* asks for: a local build of it is."""
    if found is None or found == version:
        return found is not None
    try:
        return SpecifierSet(f"{PINNED}{version}").contains(found, prereleases=True)
    except InvalidVersion:
        return False
