"""What pytest asks at each start, answered once in the server and not in each run."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import Distribution
from types import ModuleType
from typing import Any, Final

import pytest


# Plugins without a fixture.
#
# At its start pytest looks at each attribute of each plugin for fixtures, thousands of them:
# 8 to 16 ms in each measuring process. Which modules have none does not change. pytest has no
# public name for this. A release that has other names than these looks as it always does.

LOOK: Final = "parsefactories"
REGISTER: Final = "_register_fixture"
"""Methods of pytest's ``FixtureManager``: one looks, the other takes what it finds."""

_plain: Final[dict[ModuleType, int]] = {}
"""Modules that had no fixture, and how many names they had."""


@contextmanager
def plain_plugins_seen() -> Iterator[None]:
    """Note which modules have no fixture while pytest runs, for ``skip_plain_plugins``."""
    manager = _manager()
    if manager is None:
        yield
        return
    look, register = getattr(manager, LOOK), getattr(manager, REGISTER)
    found: list[object] = []
    full: set[ModuleType] = set()

    def registered(self: Any, *args: Any, **named: Any) -> None:
        found.append(named.get("name"))
        register(self, *args, **named)

    def noted(self: Any, *args: Any, **named: Any) -> None:
        found.clear()
        look(self, *args, **named)
        for module in _looked_at(args, named):
            if found:
                full.add(module)
            elif module not in full:  # some releases find nothing at a second look
                _plain[module] = len(vars(module))

    setattr(manager, LOOK, noted)
    setattr(manager, REGISTER, registered)
    try:
        yield
    finally:
        setattr(manager, LOOK, look)
        setattr(manager, REGISTER, register)


def skip_plain_plugins() -> None:
    """Let the pytest of this process and of its forks not look for fixtures in vain."""
    manager = _manager()
    if manager is None:
        return
    look = getattr(manager, LOOK)

    def looked(self: Any, *args: Any, **named: Any) -> None:
        # A plugin that somebody has added to since is looked at again.
        modules = _looked_at(args, named)
        if not any(_plain.get(module) == len(vars(module)) for module in modules):
            look(self, *args, **named)

    setattr(manager, LOOK, looked)


def _manager() -> Any:
    """Return pytest's class; ``None`` if this release has none that looks like it."""
    manager = getattr(
        importlib.import_module("_pytest.fixtures"), "FixtureManager", None
    )
    is_known = hasattr(manager, LOOK) and hasattr(manager, REGISTER)
    return manager if is_known else None


def _looked_at(args: tuple[Any, ...], named: dict[str, Any]) -> list[ModuleType]:
    """Return the module that pytest looks at, if it is one, in any of its releases."""
    looked_at = (*args[:1], *named.values())
    return [one for one in looked_at if isinstance(one, ModuleType)]


# The installed packages, read once in the server and not by the pytest of each run.
#
# To find its plugins pytest asks each package of the environment twice: a quarter of what
# its start costs. Nothing is installed or removed between two runs of one session.

PLUGINS: Final = "pytest11"
"""The group of the entry points that are pytest's plugins."""


class Package:
    """A *found* package; what pytest asks for is read once."""

    def __init__(self, found: Distribution) -> None:
        self._found = found
        self.entry_points = found.entry_points
        # Of others nobody asks, and the list of torch's files is long.
        if any(point.group == PLUGINS for point in self.entry_points):
            self.files = found.files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


class Installed:
    """The packages on *search_path*, as they were when this was made."""

    def __init__(self, search_path: Sequence[str]) -> None:
        self._path = tuple(search_path)
        self._packages = [Package(d) for d in Distribution.discover(path=[*self._path])]

    def on(self, search_path: Sequence[str]) -> Iterator[Distribution | Package]:
        """Yield the packages on *search_path*; what is not known of it is read now."""
        known = [place for place in search_path if place in self._path]
        if (*known,) != self._path:
            yield from Distribution.discover(path=[*search_path])
            return
        # A project puts its own folders first, and the first package of a name counts.
        more = [place for place in search_path if place not in self._path]
        yield from Distribution.discover(path=more)
        yield from self._packages


@lru_cache(maxsize=1)
def installed() -> Installed:
    """Return what is installed where this process looked for modules when first asked."""
    return Installed(sys.path)


class KnownPackages:
    """A plugin of pytest that answers it what is installed, till a conftest is loaded."""

    def __init__(self, packages: Installed) -> None:
        self._packages = packages
        self._asks = importlib.metadata.distributions

    def __enter__(self) -> None:
        def known(**context: Any) -> Iterator[Any]:
            if context:
                return iter(self._asks(**context))
            return self._packages.on(sys.path)

        importlib.metadata.distributions = known

    def __exit__(self, *_: object) -> None:
        importlib.metadata.distributions = self._asks

    # First: a project finds Python's own function.
    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        self.__exit__()
