"""The installed packages, read once in the server and not by the pytest of each run.

To find its plugins pytest asks each package of the environment twice: a quarter of what
its start costs. Nothing is installed or removed between two runs of one session.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import Distribution
from typing import Any
from typing import Final

import pytest


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
