"""One lock a device and user: many may use it, one alone may time on it.

A lock is two files under ``flock``, so the kernel frees it when its holder dies. Who
times waits at the gate until the users have gone, and keeps new ones out meanwhile.
Nobody goes from shared to exclusive in place: two who tried would wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import UsageError
from .holders import holders_of


PAUSE_SECONDS: Final = 0.005
"""Between two tries at a lock that another process holds."""

PRIVATE: Final = 0o700


def lock_folder() -> Path:
    """Return where the locks of this user's devices lie, the same for every run."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime, "gpuperf")
    return Path(tempfile.gettempdir(), f"gpuperf-{os.getuid()}")


class DeviceLock:
    """The lock of the device *name*; one object holds it once.

    Raises ``UsageError`` where *folder* cannot hold locks of this user.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._now = now
        self._pause = pause
        _make_private(folder)
        self._path = folder / f"{name}.lock"
        self._gate_path = folder / f"{name}.gate"
        self._is_open = False
        self._open()

    def _open(self) -> None:
        """A forked child holds nothing of its parent, and can hold the lock itself."""
        if self._is_open:
            return
        self._lock, self._gate = _opened(self._path), _opened(self._gate_path)
        self._is_open, self._has_gate = True, False
        _OPEN.add(self)

    @contextmanager
    def shared(self, timeout_seconds: float) -> Iterator[None]:
        """Use the device beside others; raise ``UsageError`` if none may in time."""
        self._open()
        deadline = self._now() + timeout_seconds
        self._take(self._gate, fcntl.LOCK_SH, deadline)
        try:
            self._take(self._lock, fcntl.LOCK_SH, deadline)
        finally:
            self._unlock(self._gate)
        try:
            yield
        finally:
            self._unlock(self._lock)

    def try_exclusive(self) -> bool:
        """Ask for the device alone and do not wait.

        Who asked and did not get it keeps new users out, until ``release``.
        """
        self._open()
        self._has_gate = self._has_gate or _try(self._gate, fcntl.LOCK_EX)
        return self._has_gate and _try(self._lock, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let go of what ``try_exclusive`` took."""
        self._has_gate = False
        self._unlock(self._lock, self._gate)

    def holders(self) -> str:
        """Name the processes that have the device."""
        found = holders_of(self._path) or holders_of(self._gate_path)
        return " and ".join(found or ("another process",))

    def refusal(self) -> UsageError:
        """Say that the device did not come free."""
        msg = (
            f"{self._path}: {self.name} is in use by {self.holders()}, and did not come "
            "free in time: wait for it, or measure on another device"
        )
        return UsageError(msg)

    def close(self) -> None:
        """Give the files back; what is held is let go."""
        for descriptor in (self._lock, self._gate) if self._is_open else ():
            with suppress(OSError):
                os.close(descriptor)
        self._is_open = False
        _OPEN.discard(self)

    def _unlock(self, *descriptors: int) -> None:
        if self._is_open:
            for descriptor in descriptors:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _take(self, descriptor: int, how: int, deadline: float) -> None:
        while not _try(descriptor, how):
            self._wait(deadline)

    def _wait(self, deadline: float) -> None:
        if self._now() >= deadline:
            raise self.refusal()
        self._pause(PAUSE_SECONDS)


def _try(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_private(folder: Path) -> None:
    """A folder that others may write to could make us wait for ever, or not at all."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        msg = f"{folder}: expected a folder for locks, found {error.strerror}"
        raise UsageError(msg) from None
    if status.st_uid != os.getuid():
        msg = (
            f"{folder}: expected a folder of this user for locks, found one of user "
            f"{status.st_uid}: remove it, or point XDG_RUNTIME_DIR to a folder of yours"
        )
        raise UsageError(msg)


def _opened(path: Path) -> int:
    """Open *path* and make it look used: what cleans temporary folders spares it then."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        msg = f"{path}: expected a file to lock, found {error.strerror}"
        raise UsageError(msg) from None
    with suppress(OSError):
        os.utime(descriptor)
    return descriptor


_OPEN: Final[weakref.WeakSet[DeviceLock]] = weakref.WeakSet()


def _close_all() -> None:
    """A forked child, as a DataLoader's worker is, must not hold its parent's locks."""
    for lock in list(_OPEN):
        lock.close()


os.register_at_fork(after_in_child=_close_all)
