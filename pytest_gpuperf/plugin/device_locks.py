"""Ordinary tests of an enabled run use the devices, but never while somebody times."""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from ..settings import Settings
from ..settings import SharedUse
from ..sharing.device_lock import DeviceLock
from ..sharing.device_lock import lock_folder
from .reported_items import ReportedItem


class BesideOthers:
    """The plugin that keeps devices locked for shared use around each ordinary test.

    Locks are taken in the order of their *names*, so that no two processes deadlock.
    """

    def __init__(self, names: Iterable[str], seconds: float) -> None:
        self._locks = [DeviceLock(lock_folder(), name) for name in sorted(set(names))]
        self._seconds = seconds
        self._held = ExitStack()

    # First: fixtures of the test may already use the device.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if isinstance(item, ReportedItem):
            return
        for lock in self._locks:
            self._held.enter_context(lock.shared(self._seconds))

    # After all fixtures: they may use the device until they are torn down.
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
    """Let ordinary tests wait for the devices *names*, if the settings ask for it."""
    if settings.shared_use is SharedUse.ALL:
        plugin = BesideOthers(names, settings.lock_seconds)
        config.pluginmanager.register(plugin, "gpuperf-beside-others")
