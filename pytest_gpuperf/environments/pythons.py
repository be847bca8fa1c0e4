"""Another Python for one side of a comparison, with the packages of this one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from collections.abc import Iterator
from importlib.metadata import Distribution
from importlib.metadata import distributions
from pathlib import Path
from platform import python_version
from typing import Any
from typing import Final
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model.environment import Overlay
from .cache import PackageCache
from .installers import uv_of
from .overlay import FILE
from .overlay import SITE_PACKAGES
from .overlay import PackageChange


SAY_VERSION: Final = "import platform; print(platform.python_version())"


def other_python(
    wanted: str,
    change: PackageChange,
    project: Path,
    cache: PackageCache,
    announce: Callable[[str], None],
) -> Overlay:
    """Return the Python that is *wanted*, with what is installed here and *change*.

    The code of the *project* is not installed: each side has its own. Raises
    ``UsageError`` if there is no such Python, or a package cannot be installed for it.
    """
    uv, python = uv_of(wanted)
    version = _version(python)
    needed = [*_needed(change, project), *change.requirements]

    def install(folder: Path) -> None:
        announce(f"installing {len(needed)} packages for Python {version}")
        uv.fill(needed, folder / SITE_PACKAGES)

    folder = cache.folder([f"Python {python} {version}", *needed], install)
    return Overlay(
        path=(str(folder / SITE_PACKAGES), *map(str, _sources(project))),
        changes=tuple(_changes(version, change)),
        python=python,
    )


def _version(python: str) -> str:
    asked = [python, "-c", SAY_VERSION]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603 - found by uv
    return done.stdout.strip()


def _needed(change: PackageChange, project: Path) -> Iterator[str]:
    """Yield what is installed, each as exact as it can be said, but for what changes."""
    changed = {Requirement(each).name for each in change.requirements}
    left_out = {*map(canonicalize_name, (*changed, *change.without))}
    for found in distributions():
        if "Name" not in found.metadata:  # a folder that an installer left behind
            continue
        name, place = canonicalize_name(found.metadata["Name"]), _place(found)
        if name in left_out or (place and place.is_relative_to(project)):
            continue
        yield f"{name} @ {_origin(found)}" if place else f"{name}=={found.version}"


def _sources(project: Path) -> Iterator[Path]:
    """Yield where the *project* is imported from, if it is installed."""
    for found in distributions():
        place = _place(found)
        if place and place.is_relative_to(project):
            yield from filter(Path.is_dir, (place, place / "src"))


def _place(found: Distribution) -> Path | None:
    """Return the folder or archive that it was installed from, if not from an index."""
    url = _origin(found)
    return Path(unquote(url.removeprefix(FILE))) if url.startswith(FILE) else None


def _origin(found: Distribution) -> str:
    origin: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    return str(origin.get("url", ""))


def _changes(version: str, change: PackageChange) -> Iterator[str]:
    yield f"Python {python_version()} -> {version}"
    yield from change.requirements
    yield from (f"no {name}" for name in change.without)
