"""The pins of a lock file, and how they differ from what is installed."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import distributions
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from ..errors import ErrorId, UsageError
from ..files import read_regular_text


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

    Of their extras and groups that is what is installed: nobody says which were asked for.
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
    """Return the requirements of *pins* that what is *here* does not meet."""
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
