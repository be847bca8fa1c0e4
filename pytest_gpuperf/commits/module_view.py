"""Two versions of a project in one process, of which code sees one at a time.

``sys.modules`` stays one dictionary: the interpreter knows no other. What is a version's
own is taken out of it when the other one's turn comes, and put back for the next turn.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any
from typing import Final

from ..devices.random_state import RandomState
from ..runs.relocation import OURS
from ..runs.relocation import RelocatingFinder
from ..runs.relocation import Relocation


INSTALLED: Final = ("stdlib", "platstdlib", "purelib", "platlib")
"""Names of the folders, for ``sysconfig``, whose modules all versions share."""

TEST_RUNNER: Final = "_pytest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewpoint:
    """Where code of one version starts from."""

    relocation: Relocation
    directory: str
    search_path: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(slots=True, eq=False)
class View:
    """What code of one version finds: what it imports, and what the process has once."""

    relocation: Relocation
    directory: str
    path: list[str]
    finders: list[Any]
    environment: dict[str, str]
    random: RandomState
    modules: dict[str, ModuleType] = field(default_factory=dict)

    @property
    def files(self) -> frozenset[str]:
        """Files of its modules."""
        named = (getattr(module, "__file__", None) for module in self.modules.values())
        return frozenset(file for file in named if file)


class Views:
    """Both versions; between turns neither is to be seen."""

    def __init__(self, first: Viewpoint, second: Viewpoint) -> None:
        """Take what this process has imported of either one apart."""
        self._outside = _installed((first.relocation, second.relocation))
        start, environment = RandomState.now(), dict(os.environ)
        self._current: View | None = None
        self._last = ""
        sys.meta_path[:] = [f for f in sys.meta_path if not _is_relocating(f)]
        self.both = (
            _view(first, environment, start),
            _view(second, environment, start),
        )
        for view in self.both:
            view.modules = _taken([n for n in sys.modules if self._is_of(view, n)])

    def show(self, view: View) -> None:
        """Let code see *view* and nothing of the other one."""
        if self._current is view:
            return
        self.hide()
        self._put_in(view)
        _set_environment(view.environment)
        view.random.restore()

    def hide(self) -> None:
        """Keep what code has made of the view in the meantime, for its next turn."""
        view = self._current
        if view is not None:
            self._take_out(view)
            view.environment = dict(os.environ)
            view.random = RandomState.now()

    def turn(self, view: View) -> None:
        """Let code see *view*, between two blocks of steps: a cheap ``show``.

        Both sides draw from one source of random numbers then, as two steps of one test
        do, and environment variables change hands only where they differed before.
        """
        if not self._are_alike:
            self.show(view)
        elif self._current is not view:
            if self._current is not None:
                self._take_out(self._current)
            self._put_in(view)

    @property
    def _are_alike(self) -> bool:
        first, second = self.both
        return first.environment == second.environment

    def _put_in(self, view: View) -> None:
        sys.modules.update(view.modules)
        self._last = next(reversed(sys.modules))
        sys.path[:] = view.path
        sys.meta_path[:0] = view.finders
        os.chdir(view.directory)
        self._current = view

    def _take_out(self, view: View) -> None:
        self._current = None
        view.modules = _taken(self._names_of(view))
        view.path = list(sys.path)
        view.finders = [f for f in sys.meta_path if _is_own_finder(f, view.modules)]
        sys.meta_path[:] = [f for f in sys.meta_path if f not in view.finders]
        view.directory = os.getcwd()  # noqa: PTH109, a path is more than is needed

    def note(self, view: View) -> None:
        """Add to *view*, which is shown, what has been imported since then."""
        names = self._names_of(view)
        view.modules = {n: sys.modules[n] for n in names if n in sys.modules}

    def _names_of(self, view: View) -> Iterable[str]:
        """Name its modules; what is new stands at the end of ``sys.modules``."""
        names = list(takewhile(lambda name: name != self._last, reversed(sys.modules)))
        new = [name for name in names if self._is_own(name)]
        return dict.fromkeys((*view.modules, *reversed(new))) if new else view.modules

    def _is_own(self, name: str) -> bool:
        """Whether a new module is one that each version must import for itself.

        That is all that is not installed: code beside the project may import it.
        """
        package = name.partition(".")[0]
        if package == OURS:
            return False
        place = _place(sys.modules[name])
        if place is None:  # made by hand
            whole = package == name or package not in sys.modules
            return whole or self._is_own(package)
        return not any(_is_below(place, folder) for folder in self._outside)

    def _is_of(self, view: View, name: str) -> bool:
        place = _place(sys.modules[name])
        if place is None or not _is_below(place, view.relocation.root):
            return False
        return self._is_own(name)


def _view(
    point: Viewpoint, environment: Mapping[str, str], random: RandomState
) -> View:
    return View(
        relocation=point.relocation,
        directory=point.directory,
        path=list(point.search_path),
        finders=[RelocatingFinder(point.relocation)],
        environment={**environment, **point.environment},
        random=random,
    )


def _installed(relocations: Sequence[Relocation]) -> frozenset[str]:
    """Real folders of installed modules; one that holds a version is none."""
    named = {
        *(sysconfig.get_path(name) for name in INSTALLED),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
    folders = frozenset(map(os.path.realpath, named))
    roots = [relocation.root for relocation in relocations]
    return frozenset(
        folder for folder in folders if not any(_is_below(r, folder) for r in roots)
    )


def _place(module: ModuleType | None) -> str | None:
    """Real folder of *module*; ``None`` where it was made by hand.

    Built-in ones stand in the standard library. A test may have put ``None`` there to
    forbid an import, and ``torch.ops`` answers what one asks it for.
    """
    known = getattr(module, "__dict__", {})
    file, spec = known.get("__file__"), known.get("__spec__")
    if isinstance(file, str) and Path(file).is_absolute():
        return _real(str(Path(file).parent))
    for folder in known.get("__path__", ()):
        return _real(str(folder))
    return _real(sysconfig.get_path("stdlib")) if spec is not None else None


@cache
def _real(folder: str) -> str:
    """Few folders hold many modules."""
    return os.path.realpath(folder)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip(os.sep)}{os.sep}")


def _taken(names: Iterable[str]) -> dict[str, ModuleType]:
    modules = sys.modules
    return {name: modules.pop(name) for name in names if name in modules}


def _is_relocating(finder: object) -> bool:
    return isinstance(finder, RelocatingFinder)


def _is_own_finder(finder: object, modules: Mapping[str, ModuleType]) -> bool:
    """Whether a finder is of one version: ours, pytest's of its session, its code's."""
    made_in = type(finder).__module__ if not isinstance(finder, type) else ""
    package = made_in.partition(".")[0]
    return _is_relocating(finder) or package == TEST_RUNNER or made_in in modules


def _set_environment(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
