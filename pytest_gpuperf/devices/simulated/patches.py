"""Replaces names of torch while the simulation is active, and restores them after."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, Final, NamedTuple


# Patches of modules that are imported after the simulated GPU was entered.

Loaded = Callable[[Any], None]


Around = Callable[[], AbstractContextManager[object]]


@contextmanager
def when_loaded(
    name: str, loaded: Loaded, around: Around = nullcontext
) -> Iterator[None]:
    """Call *loaded* with the module *name*: now, or as soon as it is imported.

    A module that is imported later runs inside *around*.
    """
    module = sys.modules.get(name)
    if module is not None:
        loaded(module)
        yield
        return
    finder = _Finder(name, loaded, around)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds one module as the other finders do, and wraps its loader."""

    def __init__(self, name: str, loaded: Loaded, around: Around) -> None:
        self._name = name
        self._loaded = loaded
        self._around = around

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._loaded, self._around)  # type: ignore[assignment]
        return spec


class _Loader:
    """The module's own loader; it calls *loaded* after the module has run."""

    def __init__(self, loader: Any, loaded: Loaded, around: Around) -> None:
        self._own = loader
        self._loaded = loaded
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def exec_module(self, module: Any) -> None:
        # Put back before the module runs: it may ask its loader for data.
        module.__loader__ = module.__spec__.loader = self._own
        with self._around():
            self._own.exec_module(module)
        self._loaded(module)


class Patch(NamedTuple):
    """``owner.name`` is to be ``value``."""

    owner: Any
    name: str
    value: Any


NOT_PATCHED: Final = object()

Suspended = Callable[[], AbstractContextManager[None]]
"""Undoes patches for the time of a context."""


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[Suspended]:
    """Apply *patches* all over the process; on leaving undo them, last one first.

    Modules that imported a function before, by ``from torch import zeros``, get its
    replacement as well.
    """
    kept = list(patches)
    with ExitStack() as undo:
        undo.callback(_apply(kept))

        @contextmanager
        def suspended() -> Iterator[None]:
            undo.close()
            try:
                yield
            finally:
                undo.callback(_apply(kept))

        yield suspended


def _apply(patches: Iterable[Patch]) -> Callable[[], None]:
    """Apply *patches*, and return what undoes them."""
    with ExitStack() as undo:
        replaced: dict[int, tuple[Any, Any]] = {}
        for patch in patches:
            previous = vars(patch.owner).get(patch.name, NOT_PATCHED)
            undo.callback(_put_back, patch.owner, patch.name, previous)
            setattr(patch.owner, patch.name, patch.value)
            if isinstance(patch.owner, ModuleType) and callable(previous):
                # The object is kept with its replacement, so that its id stays taken.
                replaced[id(previous)] = (previous, patch.value)
        for module, name, value in _taken_out(replaced):
            undo.callback(_put_back, module, name, vars(module)[name])
            setattr(module, name, value)
        return undo.pop_all().close


def _put_back(owner: Any, name: str, previous: Any) -> None:
    if previous is NOT_PATCHED:
        delattr(owner, name)
    else:
        setattr(owner, name, previous)


def _taken_out(replaced: dict[int, tuple[Any, Any]]) -> Iterator[Patch]:
    """Yield names in loaded modules that still refer to what was replaced."""
    own = __name__.rpartition(".")[0]
    loaded: list[Any] = list(sys.modules.values())
    for module in loaded:
        if not isinstance(module, ModuleType) or module.__name__.startswith(own):
            continue
        # Few modules have any of them, and thousands are loaded.
        if replaced.keys().isdisjoint(map(id, list(vars(module).values()))):
            continue
        for name, value in list(vars(module).items()):
            previous, stand_in = replaced.get(id(value), (None, None))
            # Equality would call ``__eq__`` of arbitrary objects in the user's modules.
            if previous is not None and previous is value:
                yield Patch(module, name, stand_in)
