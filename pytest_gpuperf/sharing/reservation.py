"""A device that is to be timed on: asked for without standing still meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from .device_lock import DeviceLock


QUIET_SECONDS: Final = 1.0
"""A wait that is shorter is not worth a word."""


class Reservation:
    """Asks for *lock* again and again, for *seconds* at most.

    *announce* is told once of a wait who has the device.
    """

    def __init__(
        self,
        lock: DeviceLock,
        seconds: float,
        announce: Callable[[str], None],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = lock
        self._seconds = seconds
        self._announce = announce
        self._now = now
        self._since: float | None = None
        self._is_announced = False

    def take(self) -> bool:
        """Whether the device is had now; raise ``UsageError`` if it never came free."""
        if self._lock.try_exclusive():
            self._since, self._is_announced = None, False
            return True
        self._since = self._now() if self._since is None else self._since
        waited = self._now() - self._since
        if waited >= self._seconds:
            self._lock.release()
            raise self._lock.refusal()
        if waited >= QUIET_SECONDS and not self._is_announced:
            self._is_announced = True
            holders = self._lock.holders()
            self._announce(f"waiting for {self._lock.name}, in use by {holders}")
        return False

    def give_back(self) -> None:
        """Let others have the device."""
        self._lock.release()

    def close(self) -> None:
        """Let go for good."""
        self._lock.close()


class Unlocked:
    """Stands for a device that nobody can be in the way at."""

    def take(self) -> bool:
        return True

    def give_back(self) -> None:
        """Nobody waits for it."""

    def close(self) -> None:
        """There is nothing to let go."""
