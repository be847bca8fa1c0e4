"""Ordinary tests of an enabled run use the devices, but never while somebody times."""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from .reported import ReportedItem
from .settings import Settings
from .settings import SharedUse
from .sharing.device_lock import DeviceLock
from .sharing.device_lock import lock_folder


class BesideOthers:
    """The plugin that holds the shared side of devices around each ordinary test.

    In the order of their *names*: who takes several in one order never waits in a ring.
    """

    def __init__(self, names: Iterable[str], seconds: float) -> None:
        self._locks = [DeviceLock(lock_folder(), name) for name in sorted(set(names))]
        self._seconds = seconds
        self._held = ExitStack()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if isinstance(item, ReportedItem):
            return
        for lock in self._locks:
            self._held.enter_context(lock.shared(self._seconds))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        try:
            yield
        finally:
            self._held.close()

    def pytest_unconfigure(self) -> None:
        for lock in self._locks:
            lock.close()


def use_beside_others(
    config: pytest.Config, names: Iterable[str], settings: Settings
) -> None:
    """Let ordinary tests wait for the devices *names*, where that was asked."""
    if settings.shared_use is SharedUse.ALL:
        plugin = BesideOthers(names, settings.lock_seconds)
        config.pluginmanager.register(plugin, "gpuperf-beside-others")
