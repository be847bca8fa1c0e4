"""Another Python for one side of a comparison, with the packages of this one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path
from platform import python_version
from typing import Any
from typing import Final
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model.environment import Overlay
from .installers import installer
from .installers import uv_of
from .lock_files import installed_packages
from .overlay import FILE
from .overlay import SITE_PACKAGES
from .overlay import PackageCache
from .overlay import PackageChange
from .overlay import overlay_at
from .overlay import with_content


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
    packages = installer().needs(change.requirements) if change.requirements else ()
    needed = [*_kept(packages, change.without, project), *packages]

    def install(folder: Path) -> None:
        announce(f"installing {len(needed)} packages for Python {version}")
        uv.fill(needed, folder / SITE_PACKAGES)

    key = [f"Python {python} {version}", *map(with_content, needed)]
    path = (cache.folder(key, install) / SITE_PACKAGES, *_sources(project))
    other = overlay_at(tuple(map(str, path)), packages, change.without)
    changes = (f"Python {python_version()} -> {version}", *other.changes)
    return replace(other, changes=changes, python=python)


def _version(python: str) -> str:
    asked = [python, "-c", SAY_VERSION]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603 - found by uv
    return done.stdout.strip()


def _kept(
    packages: Sequence[str], without: Sequence[str], project: Path
) -> Iterator[str]:
    """Yield what stays as it is installed, each as exact as it can be said."""
    changed = (Requirement(each).name for each in packages)
    left_out = {*map(canonicalize_name, (*changed, *without))}
    for name, found in installed_packages().items():
        place = _place(found)
        if name in left_out or (place and place.is_relative_to(project)):
            continue
        yield f"{name} @ {_origin(found)}" if place else f"{name}=={found.version}"


def _sources(project: Path) -> Iterator[Path]:
    """Yield where the *project* is imported from, if it is installed."""
    for found in installed_packages().values():
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
