"""Reserves a device for timing without blocking the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from ..model.environment import DeviceSlot
from ..sharing.device_lock import (
    LOCK_PAUSE_SECONDS,
    TURN_SECONDS,
    DeviceLock,
    lock_folder,
    passed_over,
)


QUIET_SECONDS: Final = 1.0
"""A wait that is shorter is not worth a word."""


_SAID: Final[set[str]] = set()
"""What this process has announced: each of its devices has a lock in the same folder."""


class Turns(Protocol):
    """A device's place in the queue of all who would time on it."""

    def take(self) -> bool:
        """Try to get the device; return whether it is ours now."""

    def give_back(self) -> None:
        """Let others have it."""

    def close(self) -> None:
        """Leave the queue for good."""


class Reservation:
    """Asks for *lock* again and again, for *seconds* at most.

    They are the user's patience for other people's runs, so the wall clock counts them.
    *announce* is called once per wait, with the process that has the device.
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
        """Try to get the device; raise ``UsageError`` if time is up."""
        if self._lock.try_exclusive():
            self._since, self._is_announced = None, False
            return True
        self._since = self._now() if self._since is None else self._since
        waited = self._now() - self._since
        if waited >= self._seconds:
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
        """Leave the queue for good."""
        self._lock.close()


@contextmanager
def alone(turns: Turns, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Have the device alone; raise ``UsageError`` if it never comes free."""
    while not turns.take():
        pause(LOCK_PAUSE_SECONDS)
    try:
        yield
    finally:
        turns.give_back()


def turns_at(slot: DeviceSlot, announce: Callable[[str], None]) -> Turns:
    """Return the queue of all who would time at *slot*."""
    if slot.lock is None:
        return Unlocked()
    for sentence in passed_over():
        if sentence not in _SAID:
            _SAID.add(sentence)
            announce(sentence)
    return Reservation(DeviceLock(lock_folder(), slot.lock), TURN_SECONDS, announce)


class Unlocked:
    """The queue of a device without a lock: nobody else can be in it."""

    def take(self) -> bool:
        return True

    def give_back(self) -> None:
        """Nobody waits for it."""

    def close(self) -> None:
        """There is nothing to release."""
