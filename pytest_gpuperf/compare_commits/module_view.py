"""Two versions of a project in one process, of which code sees one at a time.

``sys.modules`` stays one dictionary: the interpreter knows no other. The modules of a
version are taken out of it for the other version's turn, and put back for the next one.
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
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any
from typing import Final

from ..devices.torch_state import RandomState
from ..measure.step import Subject
from ..model.measurement import Measurement
from ..runner.relocation import OWN_PACKAGE
from ..runner.relocation import RelocatingFinder
from ..runner.relocation import Relocation
from ..runner.relocation import is_below
from ..runner.relocation import real_folder
from ..runner.request import RunRequest


INSTALLED_PATHS: Final = ("stdlib", "platstdlib", "purelib", "platlib")
"""Names, for ``sysconfig``, of the folders with modules that all versions share."""

TEST_RUNNER: Final = "_pytest"


VERSION_NAMES: Final = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """One version: how its test is run, where its code is, and what that finds there.

    ``measured`` is what its test measured when it ran alone.
    """

    run: RunRequest
    relocation: Relocation
    environment: Mapping[str, str]
    measured: tuple[Measurement, ...] = ()


@dataclass(slots=True, eq=False)
class View:
    """What code of one version sees: its imports, and the global state of the process.

    ``subject`` is its step, once that is known.
    """

    name: str
    guest: Guest
    directory: str
    path: list[str]
    finders: list[Any]
    environment: dict[str, str]
    random: RandomState
    modules: dict[str, ModuleType] = field(default_factory=dict)
    subject: Subject | None = None

    @property
    def files(self) -> frozenset[str]:
        """Files of its modules."""
        named = (getattr(module, "__file__", None) for module in self.modules.values())
        return frozenset(file for file in named if file)


class Views:
    """Both versions; between turns neither is to be seen."""

    def __init__(self, before: Guest, after: Guest) -> None:
        """Take what this process has imported of either one apart."""
        relocations = before.relocation, after.relocation
        self._outside = _apart_from(_installed(), relocations)
        start, environment = RandomState.now(), dict(os.environ)
        self._current: View | None = None
        self._last = ""
        sys.meta_path[:] = [f for f in sys.meta_path if not _is_relocating(f)]
        first, second = VERSION_NAMES
        self.both = (
            _view(first, before, environment, start),
            _view(second, after, environment, start),
        )
        for view in self.both:
            view.modules = _taken([n for n in sys.modules if self._is_of(view, n)])
        self._outside |= _apart_from(_shared_packages(), relocations)

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

        Both sides then draw from one source of random numbers, as two steps of one test
        do. Environment variables are exchanged only if they differed before.
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
        # This runs between timed blocks: a ``Path`` would cost more than the call.
        view.directory = os.getcwd()  # noqa: PTH109

    def note(self, view: View) -> None:
        """Add to *view*, which is shown, what has been imported since then."""
        names = self._names_of(view)
        view.modules = {n: sys.modules[n] for n in names if n in sys.modules}

    def _names_of(self, view: View) -> Iterable[str]:
        """Name its modules, and new ones at the end of ``sys.modules``."""
        # A dict keeps the order of insertion, so only what came after the last known
        # name is looked at: this runs between blocks of timed steps.
        names = list(takewhile(lambda name: name != self._last, reversed(sys.modules)))
        new = [name for name in names if self._is_own(name)]
        return dict.fromkeys((*view.modules, *reversed(new))) if new else view.modules

    def _is_own(self, name: str) -> bool:
        """Whether a new module is one that each version must import for itself.

        That is all that is not installed: code beside the project may import it.
        """
        package = name.partition(".")[0]
        if package == OWN_PACKAGE:
            return False
        place = _place(sys.modules[name])
        # Made by hand: it belongs with its package, if it has one that is loaded.
        if place is None:
            whole = package == name or package not in sys.modules
            return whole or self._is_own(package)
        return not any(is_below(place, folder) for folder in self._outside)

    def _is_of(self, view: View, name: str) -> bool:
        place = _place(sys.modules[name])
        if place is None or not is_below(place, view.guest.relocation.root):
            return False
        return self._is_own(name)


def _view(
    name: str, guest: Guest, environment: Mapping[str, str], random: RandomState
) -> View:
    return View(
        name=name,
        guest=guest,
        directory=guest.run.project.directory,
        path=list(guest.run.project.search_path),
        finders=[RelocatingFinder(guest.relocation)],
        environment={**environment, **guest.environment},
        random=random,
    )


def _installed() -> frozenset[str]:
    """Return the real folders of installed modules."""
    named = {
        *(sysconfig.get_path(name) for name in INSTALLED_PATHS),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
    return frozenset(map(os.path.realpath, named))


def _apart_from(
    folders: Iterable[str], relocations: Sequence[Relocation]
) -> frozenset[str]:
    """Return *folders* without one that has a version inside."""
    roots = [relocation.root for relocation in relocations]
    return frozenset(
        folder for folder in folders if not any(is_below(r, folder) for r in roots)
    )


def _shared_packages() -> frozenset[str]:
    """Return the folders of packages that were imported before either version was.

    They may be anywhere: ``PYTHONPATH`` or a path file may lead to an installed torch.
    """
    packages = [m for n, m in list(sys.modules.items()) if "." not in n]
    return frozenset(
        place
        for module in packages
        if "__path__" in getattr(module, "__dict__", {})
        and (place := _place(module)) is not None
    )


def _place(module: ModuleType | None) -> str | None:
    """Return the real folder of *module*; ``None`` if it was made by hand.

    Built-in modules count as the standard library's.
    """
    # ``__dict__`` and no plain attributes: a test may have put ``None`` into
    # ``sys.modules`` to forbid an import, and ``torch.ops`` has every attribute.
    known = getattr(module, "__dict__", {})
    file, spec = known.get("__file__"), known.get("__spec__")
    if isinstance(file, str) and Path(file).is_absolute():
        return real_folder(str(Path(file).parent))
    for folder in known.get("__path__", ()):
        return real_folder(str(folder))
    return real_folder(sysconfig.get_path("stdlib")) if spec is not None else None


def _taken(names: Iterable[str]) -> dict[str, ModuleType]:
    modules = sys.modules
    return {name: modules.pop(name) for name in names if name in modules}


def _is_relocating(finder: object) -> bool:
    return isinstance(finder, RelocatingFinder)


def _is_own_finder(finder: object, modules: Mapping[str, ModuleType]) -> bool:
    """Whether *finder* belongs to one version: ours, its session's, its code's."""
    made_in = type(finder).__module__ if not isinstance(finder, type) else ""
    package = made_in.partition(".")[0]
    return _is_relocating(finder) or package == TEST_RUNNER or made_in in modules


def _set_environment(environment: Mapping[str, str]) -> None:
    # In place: other modules may have a reference to ``os.environ``, and C code reads
    # the real one.
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
