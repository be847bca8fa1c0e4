"""What a process imports, and from where: another copy of the project, or no such package."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final


OWN_PACKAGE: Final = __name__.partition(".")[0]
"""This package is imported from where it is installed, even inside its own project."""

INIT: Final = "__init__.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """The project in ``origin`` has a copy in ``root``; both may be the same folder."""

    origin: str
    root: str

    def moved(self, path: str) -> str:
        """Return the place below ``root`` of a *path* below ``origin``.

        Paths elsewhere stay. So does what is installed in an environment inside the
        project.
        """
        real = os.path.realpath(path)
        if not self.is_left_behind(real):
            return path
        return str(Path(self.root, Path(real).relative_to(self.origin)))

    def is_left_behind(self, real: str) -> bool:
        """Whether the *real* path is the project's and not below ``root``."""
        return (
            is_below(real, self.origin)
            and not is_below(real, self.root)
            and not any(is_below(real, place) for place in _installed(self.origin))
        )

    def replaced(self, text: str) -> str:
        """Return an argument of the command line with the paths in it moved."""
        moved = text.replace(f"{self.origin}{os.sep}", f"{self.root}{os.sep}")
        is_whole = re.search(rf"(?:^|=){re.escape(self.origin)}$", moved)
        return moved[: -len(self.origin)] + self.root if is_whole else moved


def is_below(path: str, folder: str) -> bool:
    """Whether *path* is *folder* or in it, both written alike."""
    return path == folder or path.startswith(f"{folder.rstrip(os.sep)}{os.sep}")


@lru_cache
def _installed(origin: str) -> frozenset[str]:
    """Folders of installed packages, without an environment that contains *origin*."""
    named = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sys.prefix}
    real = frozenset(map(os.path.realpath, named))
    return frozenset(place for place in real if not is_below(origin, place))


def relocate(relocation: Relocation) -> None:
    """Make this process import the project from its root.

    ``sys.path`` is enough for most. An editable install may also have put a finder on
    ``sys.meta_path`` that knows the origin by heart.
    """
    sys.path[:] = [relocation.moved(place) for place in sys.path]
    sys.meta_path.insert(0, RelocatingFinder(relocation))


class RelocatingFinder:
    """Asks the other finders, and moves what they find; submodules follow a package."""

    def __init__(self, relocation: Relocation) -> None:
        self._relocation = relocation

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Find a module as a finder of ``sys.meta_path`` does.

        Raises ``ModuleNotFoundError`` if only the origin has it.
        """
        # A submodule is searched in its package's `__path__`, which was moved already.
        if path is not None or name == OWN_PACKAGE:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, None, target)
            if spec is not None:
                return self._moved(spec)
        return None

    def _moved(self, spec: ModuleSpec) -> ModuleSpec:
        places, moved = spec.submodule_search_locations, None
        if places is not None:
            moved = [self._relocation.moved(place) for place in places]
        if not spec.has_location:  # built in, or a namespace of folders alone
            spec.submodule_search_locations = moved
            return spec
        origin = self._relocation.moved(str(spec.origin))
        if origin == spec.origin:
            return spec
        if not Path(origin).is_file():
            msg = f"No module named {spec.name!r}: there is no {origin}"
            # Going on to the next finder would import the module of the other version.
            raise ModuleNotFoundError(msg, name=spec.name)
        found = spec_from_file_location(
            spec.name, origin, submodule_search_locations=moved
        )
        return found or spec


def stranger(
    modules: Mapping[str, ModuleType], relocation: Relocation
) -> tuple[str, str] | None:
    """Return a module of the project, with its file, that is not from the root.

    It was not moved, or is installed as a copy next to the project's own package.
    """
    own = frozenset(_packages(Path(relocation.root)))
    for name, module in sorted(modules.items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if top in {OWN_PACKAGE, "__main__"} or not isinstance(file, str):
            continue
        real = str(Path(real_folder(str(Path(file).parent)), Path(file).name))
        is_copy = top in own and not is_below(real, relocation.root)
        if is_copy or relocation.is_left_behind(real):
            return name, file
    return None


real_folder: Final[Callable[[str], str]] = lru_cache(maxsize=None)(os.path.realpath)
"""Cached: thousands of modules lie in few folders, and each call asks the disk."""


def _packages(root: Path) -> Iterator[str]:
    """Names of the packages of a project, in both usual layouts."""
    for place in (root, root / "src"):
        for init in place.glob(f"*/{INIT}"):
            if init.parent.name not in sys.stdlib_module_names:
                yield init.parent.name


def moved_path(
    environment: Mapping[str, str], relocation: Relocation, first: Sequence[str] = ()
) -> Mapping[str, str]:
    """Python's search path for what a measured test starts, if there is one.

    The *first* places come before those of the *environment*.
    """
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    moved = [place and relocation.moved(place) for place in places]
    path = os.pathsep.join([*first, *moved] if any(moved) else first)
    return {"PYTHONPATH": path} if path else {}


class HidingFinder:
    """Finds none of the *modules*, as if their packages were not installed."""

    def __init__(self, modules: Collection[str]) -> None:
        self._modules = modules

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> None:
        """Raise ``ModuleNotFoundError`` for what is hidden; leave the rest to others."""
        del path, target
        if name.partition(".")[0] in self._modules:
            msg = f"No module named {name!r}: this side of the comparison is without it"
            raise ModuleNotFoundError(msg, name=name)


def hide(modules: Sequence[str], packages: Sequence[str]) -> None:
    """Make this process import none of *modules*, nor find *packages*, which have them.

    pytest loads the plugins of all packages that it finds.
    """
    if not packages:
        return
    # Late: few processes are without a package, and each run imports this module.
    from packaging.utils import canonicalize_name

    sys.meta_path.insert(0, HidingFinder(frozenset(modules)))
    known = metadata.MetadataPathFinder.find_distributions

    def found(context: Any = metadata.DistributionFinder.Context()) -> Iterator[Any]:  # noqa: B008
        """Find as before, and leave out what is hidden."""
        return (
            each
            for each in known(context)
            if "Name" not in each.metadata
            or canonicalize_name(each.metadata["Name"]) not in packages
        )

    metadata.MetadataPathFinder.find_distributions = found  # type: ignore[method-assign]
