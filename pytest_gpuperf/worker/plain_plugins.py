"""Plugins without a fixture, seen once in the server and not by the pytest of each run.

At its start pytest looks at each attribute of each plugin for fixtures, thousands of them:
8 to 16 ms in each measuring process. Which modules have none does not change. pytest has no
public name for this. A release that has other names than these looks as it always does.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from typing import Final


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
