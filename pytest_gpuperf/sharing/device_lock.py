"""One lock and one queue a device and user: one process alone times on it.

A lock is a file under ``flock``, so the kernel frees it when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

from ..errors import ErrorId, UsageError
from ..files import (
    PlantedError,
    is_planted,
    make_private,
    open_own,
    refuse_link,
    try_flock,
)
from ..model.environment import DeviceSlot


# Identifies a lock across processes that cannot see each other's files.
#
# Ranks on several machines have locks of the same name, but where containers or network
# namespaces share a folder they have the same lock.

IDENTITY_FILE: Final = "id"


def identity_of(folder: Path, name: str) -> str:
    """Return the same text where, and only where, *name* in *folder* is the same lock.

    Raises ``UsageError`` if *folder* cannot be written to.
    """
    path = folder / IDENTITY_FILE
    with _usable(path, "a file that names the folder"):
        refuse_link(folder)
        refuse_link(path)
        if not path.exists():
            _write_once(path)
        return f"{path.read_text(encoding='utf-8')}/{name}"


@contextmanager
def _usable(path: Path, expected: str, otherwise: str = "") -> Iterator[None]:
    """Raise ``UsageError`` where *path* is another thing than *expected*, or planted.

    *otherwise* says what to do but to remove that.
    """
    try:
        yield
    except PlantedError as planted:
        msg = f"{path}: expected {expected}, found {planted}: remove it{otherwise}"
        raise UsageError(msg, ErrorId.GP412) from None
    except OSError as error:
        msg = f"{path}: expected {expected}, found {error.strerror}"
        raise UsageError(msg, ErrorId.GP412) from None


def _write_once(path: Path) -> None:
    """Never let another process read half a file, nor a second name."""
    token = uuid.uuid4().hex
    part = path.with_name(f"{IDENTITY_FILE}.{token}")
    part.write_text(token, encoding="utf-8")
    try:
        # `link` fails if the name exists, unlike `rename`, so one process wins the
        # race.
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()


# The process that has a lock, as far as the operating system shows.

KERNEL_LOCKS: Final = Path("/proc/locks")
"""Linux: a line a lock, ``1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF``."""

PID_FIELD, INODE_FIELD = 4, 5
MOST_TOLD: Final = 60


def holders_of(path: Path, locks: Path = KERNEL_LOCKS) -> tuple[str, ...]:
    """Return who has locked *path*, each as ``pid 4711 (pytest ...)``.

    Empty if the system does not list locks, as outside of Linux.
    """
    own = os.getpid()
    return tuple(
        _described(pid) for pid in sorted(set(_pids(path, locks))) if pid != own
    )


def _pids(path: Path, locks: Path) -> Iterator[int]:
    with suppress(OSError):
        # The inode alone: on btrfs the device number in this file is not the one of
        # stat.
        inode = str(path.stat().st_ino)
        for line in locks.read_text(encoding="ascii").splitlines():
            fields = line.split()
            is_held = len(fields) > INODE_FIELD and fields[1] == "FLOCK"  # "->" waits
            if is_held and fields[INODE_FIELD].rpartition(":")[2] == inode:
                yield int(fields[PID_FIELD])


def _described(pid: int) -> str:
    with suppress(OSError):
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        command = " ".join(raw.replace(b"\0", b" ").decode(errors="replace").split())
        shown = command if len(command) <= MOST_TOLD else f"{command[:MOST_TOLD]}..."
        return f"pid {pid} ({shown})" if shown else f"pid {pid}"
    return f"pid {pid}"


TURN_SECONDS: Final = 3600.0
"""Longest wait for a device that another run measures on."""

LOCK_PAUSE_SECONDS: Final = 0.005
"""Between two tries at a lock that another process has."""


def lock_folder() -> Path:
    """Return where the locks of this user's devices lie, the same for every run.

    A place that somebody else has taken is passed over.
    """
    places = list(_places())
    free = (place for place in places if not is_planted(place))
    return next(free, places[0])


def passed_over() -> tuple[str, ...]:
    """Say of each place that somebody else has taken that another one is used."""
    used = lock_folder()
    return tuple(
        f"{place}: not used for locks, it is a link or another user's; {used} is used"
        for place in takewhile(used.__ne__, _places())
    )


def _places() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield Path(runtime, "gpuperf")
    yield Path(tempfile.gettempdir(), f"gpuperf-{os.getuid()}")
    with suppress(RuntimeError):  # nobody's home
        yield Path.home() / ".cache" / "gpuperf-locks"


class DeviceLock:
    """The lock of the device *name*; one object can take it once.

    Raises ``UsageError`` if *folder* cannot be used for locks of this user.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        _make_private(folder)
        self._path = folder / f"{name}.lock"
        self._is_open = False
        self._open()

    def _open(self) -> None:
        """Open the files, again in a forked child: it has no lock of its parent."""
        if self._is_open:
            return
        self._lock = _opened(self._path)
        self._is_open = True
        _OPEN.add(self)

    def try_exclusive(self) -> bool:
        """Ask for the device and do not wait; return whether it is this process's."""
        self._open()
        return try_flock(self._lock)

    def release(self) -> None:
        """Release what ``try_exclusive`` took."""
        if self._is_open:
            try_flock(self._lock, fcntl.LOCK_UN)

    def holders(self) -> str:
        """Name the processes that have the device."""
        return " and ".join(holders_of(self._path) or ("another process",))

    def refusal(self) -> UsageError:
        """Say that the device did not come free."""
        msg = (
            f"{self._path}: {self.name} is in use by {self.holders()}, and did not come "
            "free in time: wait for it, or measure on another device"
        )
        return UsageError(msg, ErrorId.GP411)

    def close(self) -> None:
        """Close the file, which releases the lock."""
        if self._is_open:
            with suppress(OSError):
                os.close(self._lock)
        self._is_open = False
        _OPEN.discard(self)


def _make_private(folder: Path) -> None:
    """A folder that others may write to could make us wait for ever, or not at all."""
    otherwise = ", or point XDG_RUNTIME_DIR to a folder of yours"
    with _usable(folder, "a folder of this user for locks", otherwise):
        make_private(folder)


def _opened(path: Path) -> int:
    """Open *path* and make it look used: what cleans temporary folders spares it then."""
    with _usable(path, "a file of this user to lock"):
        descriptor = open_own(path)
    with suppress(OSError):
        os.utime(descriptor)
    return descriptor


_OPEN: Final[weakref.WeakSet[DeviceLock]] = weakref.WeakSet()


def _close_all() -> None:
    """Close the parent's locks in a forked child, such as a DataLoader's worker."""
    # A copy: `close` discards from the set.
    for lock in list(_OPEN):
        lock.close()


# A lock of flock belongs to the open file, which a fork shares: it would stay locked
# until the last child has closed it too, long after the parent has ended.
os.register_at_fork(after_in_child=_close_all)


# The queue of all who would time on a device.

QUIET_SECONDS: Final = 1.0
"""A wait that is shorter is not worth a word."""

_SAID: Final[set[str]] = set()
"""What this process has announced: each of its devices has a lock in the same folder."""


class Queue:
    """A place in the queue for *lock*, which is asked for again and again.

    It waits for *seconds* at most: they are the user's patience for other people's runs,
    so the wall clock counts them. *announce* is called once per wait, with the process
    that has the device. Without a lock nobody else can be in the way.
    """

    def __init__(
        self,
        lock: DeviceLock | None = None,
        seconds: float = 0.0,
        announce: Callable[[str], None] = lambda _: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = lock
        self._seconds = seconds
        self._announce = announce
        self._now = now
        self._since: float | None = None
        self._is_announced = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the device alone; raise ``UsageError`` if it never comes free."""
        while not self.take():
            time.sleep(LOCK_PAUSE_SECONDS)
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> bool:
        """Try to get the device; raise ``UsageError`` if time is up."""
        if self._lock is None or self._lock.try_exclusive():
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
        if self._lock is not None:
            self._lock.release()

    def close(self) -> None:
        """Leave the queue for good."""
        if self._lock is not None:
            self._lock.close()


def queue_at(slot: DeviceSlot, announce: Callable[[str], None]) -> Queue:
    """Return the queue of all who would time at *slot*."""
    if slot.lock is None:
        return Queue()
    for sentence in passed_over():
        if sentence not in _SAID:
            _SAID.add(sentence)
            announce(sentence)
    return Queue(DeviceLock(lock_folder(), slot.lock), TURN_SECONDS, announce)
