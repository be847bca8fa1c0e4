"""A device that is to be timed on: asked for without standing still meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from typing import Protocol

from ..model.seat import Seat
from .device_lock import PAUSE_SECONDS
from .device_lock import DeviceLock
from .device_lock import lock_folder


QUIET_SECONDS: Final = 1.0
"""A wait that is shorter is not worth a word."""


class Turns(Protocol):
    """A device's place in the queue of all who would time on it."""

    def take(self) -> bool:
        """Whether the device is had now."""

    def give_back(self) -> None:
        """Let others have it."""

    def close(self) -> None:
        """Leave the queue for good."""


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


@contextmanager
def alone(turns: Turns, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Have the device alone; raise ``UsageError`` if it never comes free."""
    while not turns.take():
        pause(PAUSE_SECONDS)
    try:
        yield
    finally:
        turns.give_back()


def turns_at(seat: Seat, seconds: float, announce: Callable[[str], None]) -> Turns:
    """Return the queue of all who would time at *seat*."""
    if seat.lock is None:
        return Unlocked()
    return Reservation(DeviceLock(lock_folder(), seat.lock), seconds, announce)


class Unlocked:
    """Stands for a device that nobody can be in the way at."""

    def take(self) -> bool:
        return True

    def give_back(self) -> None:
        """Nobody waits for it."""

    def close(self) -> None:
        """There is nothing to let go."""
