"""Says which files are the user's own code: the checkout, and what is installed editable."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ..files import read_regular


OWN: Final = f"{Path(__file__).absolute().parents[1]}{os.sep}"
"""The folder of this package, which is never the user's."""

STDLIB_ROOT: Final = f"{Path(os.__file__).absolute().parent}{os.sep}"

PACKAGE_FOLDERS: Final = ("site-packages", "dist-packages")
"""Names of the folders that packages are installed into."""

INSTALLED_ROOTS: Final = tuple(f"{STDLIB_ROOT}{name}" for name in PACKAGE_FOLDERS)

INSTALLED_FOLDERS: Final = tuple(f"{os.sep}{name}{os.sep}" for name in PACKAGE_FOLDERS)

WITHOUT_FILE: Final = ("<frozen ", "<@beartype")
"""How code begins that Python or a checker of types wrote, and no user."""

REPOSITORY: Final = ".git"
PROJECT_FILES: Final = ("pyproject.toml", "setup.py")


def checkout_of(folder: Path) -> Path:
    """Return the project around *folder*: its repository, or its outermost project file.

    Without either it is *folder* itself.
    """
    above = (folder, *folder.parents)
    of_git = (place for place in above if (place / REPOSITORY).exists())
    # An image has no repository, and a project may have others inside.
    of_files = (
        place
        for place in reversed(above)
        if any((place / name).is_file() for name in PROJECT_FILES)
    )
    return next(of_git, None) or next(of_files, folder)


def is_below(root: str, file: str) -> bool:
    """Whether *file* is below *root*; nothing is below one without a name."""
    return bool(root) and file.startswith(f"{root.rstrip(os.sep)}{os.sep}")


def is_installed(file: str) -> bool:
    """Whether *file* is a copy that an installer made."""
    return any(part in file for part in INSTALLED_FOLDERS)


def is_standard(file: str) -> bool:
    """Whether *file* is of the standard library."""
    return file.startswith(STDLIB_ROOT) and not file.startswith(INSTALLED_ROOTS)


# It is asked for every frame of every operation: files are few and stacks are deep.
@lru_cache(maxsize=4096)
def is_own(file: str, root: str) -> bool:
    """Whether *file* is code that the user works on: below *root*, or installed editable.

    What is installed in an environment below *root* is not. Without a *root* all is that
    is not installed.
    """
    if file.startswith((OWN, *WITHOUT_FILE)) or is_standard(file):
        return False
    if not root:
        return not is_installed(file)
    if not Path(file).is_absolute():  # made of text by `exec`
        return False
    # A link out of an environment leads to a cache of packages, or to what is editable.
    roots = () if is_installed(file) else (root, os.path.realpath(root))
    places = (file, os.path.realpath(file))
    folders = (*roots, *editable_folders())
    return any(_holds(folder, place) for folder in folders for place in places)


def _holds(folder: str, file: str) -> bool:
    """Whether *file* is below *folder*, and in no environment there."""
    if not is_below(folder, file) or is_installed(file):
        return False
    return not (is_below(folder, sys.prefix) and is_below(sys.prefix, file))


def name_of(file: str, root: str) -> str:
    """Name *file* as it is called on other machines as well: from *root* on, if it can be.

    Elsewhere in the checkout it is named relative to *root*, and what is installed
    editable from the name of its project's folder on.
    """
    if is_below(root, file):
        return Path(file).relative_to(root).as_posix()
    if not is_own(file, str(_checkout(root))):
        return file
    if is_below(str(_checkout(root)), file):
        return Path(os.path.relpath(file, root)).as_posix()
    real = os.path.realpath(file)
    folders = (folder for folder in editable_folders() if is_below(folder, real))
    return next((_from_project(real, folder) for folder in folders), file)


def _from_project(file: str, folder: str) -> str:
    return Path(file).relative_to(Path(folder).parent).as_posix()


@cache
def _checkout(root: str) -> Path:
    return checkout_of(Path(root))


# What is installed editable, as the installers leave it.


@cache
def editable_folders() -> tuple[str, ...]:
    """Return the folders of the projects that are installed editable, innermost first."""
    folders = (Path(p) for p in sys.path if Path(p).name in PACKAGE_FOLDERS)
    linked = {
        os.path.realpath(found)
        for folder in folders
        for found in (*_recorded(folder), *_on_the_path(folder))
    }
    # Whoever develops this package has it editable, and measures other code with it.
    kept = (place for place in linked if not is_below(place, OWN))
    return tuple(sorted(kept, key=len, reverse=True))


def _recorded(packages: Path) -> Iterator[str]:
    """Yield what ``pip install -e`` and others record in ``direct_url.json``."""
    for record in packages.glob("*.dist-info/direct_url.json"):
        known = _json_of(record)
        if "url" in known and known.get("dir_info", {}).get("editable"):
            yield unquote(urlsplit(known["url"]).path)


def _json_of(file: Path) -> dict[str, Any]:
    """Return what *file* has; nothing of one that another tool broke."""
    try:
        known = json.loads(read_regular(file))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _on_the_path(packages: Path) -> Iterator[str]:
    """Yield folders elsewhere that a ``.pth`` file adds, as ``setup.py develop`` does."""
    for file in packages.glob("*.pth"):
        for line in filter(_is_path, _lines_of(file)):
            place = packages / line.strip()
            if place.is_dir() and place.name not in PACKAGE_FOLDERS:
                yield str(place)


def _lines_of(file: Path) -> Sequence[str]:
    try:
        return read_regular(file).decode(errors="replace").splitlines()
    except OSError:
        return ()


def _is_path(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(("#", "import ", "import\t"))
