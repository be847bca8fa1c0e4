"""Patches of modules that are imported after the pretend GPU was entered."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any


Loaded = Callable[[Any], None]


@contextmanager
def when_loaded(name: str, loaded: Loaded) -> Iterator[None]:
    """Call *loaded* with the module *name*: now, or as soon as it is imported."""
    module = sys.modules.get(name)
    if module is not None:
        loaded(module)
        yield
        return
    finder = _Finder(name, loaded)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds one module as the other finders do, and has it shown when it is loaded."""

    def __init__(self, name: str, loaded: Loaded) -> None:
        self._name = name
        self._loaded = loaded

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._loaded)  # type: ignore[assignment]
        return spec


class _Loader:
    """The module's own loader, which shows the module when it has run."""

    def __init__(self, loader: Any, loaded: Loaded) -> None:
        self._own = loader
        self._loaded = loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._loaded(module)
