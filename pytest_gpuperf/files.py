"""Folders and files that are this user's and no link that somebody planted.

A repository, a restored cache or another user of the machine may have put a link where a
run is about to write. The run would then write, or delete, somewhere else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from .errors import ErrorId, UsageError


# Files that somebody else may have left, read without ever waiting for one.
#
# Opening a FIFO waits for a writer, and a device file may have no end.

FILE_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class IrregularFileError(OSError):
    """A thing of another kind than a file; its text says which."""

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: Path) -> BinaryIO:
    """Open the file at *path* to read.

    Raises ``OSError``, also where it is no regular file or a link to nothing.
    """
    try:
        _refuse_irregular(path, path.stat().st_mode)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            text = "it is a symbolic link to nothing"
            raise IrregularFileError(errno.EINVAL, text) from None
        raise
    file = os.fdopen(handle, "rb")
    # Checked again on the open descriptor: between `stat` and `open` somebody may have
    # put another file in its place.
    _refuse_irregular(path, os.fstat(handle).st_mode)
    return file


def read_regular(path: Path, most_bytes: int = -1) -> bytes:
    """Return what it has, *most_bytes* of it where that is not -1; raises ``OSError``."""
    with open_regular(path) as file:
        return file.read(most_bytes)


def read_regular_text(path: Path) -> str:
    """Return its text; raises ``UnicodeDecodeError`` if it is no UTF-8 as well."""
    return read_regular(path).decode("utf-8")


def _refuse_irregular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = FILE_KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise IrregularFileError(errno.EINVAL, f"it is {kind} and no file")


# Temporary folders, which are gone when the run is, however it ended.
#
# A measuring process keeps its own below the one of its server, which removes that when
# the controlling process is gone: a job that CI cancels is killed, and cleans up
# nothing. What a killed process leaves all the same, the next one removes: nobody has the
# lock in it any more.

TEMPORARY_PREFIX: Final = "gpuperf-"

OWNER_LOCK: Final = "owner.lock"
"""A file that is locked as long as a process uses the folder that it is in."""

_below: list[str] = []


def keep_below(folder: str) -> None:
    """Let this process and its forks make their folders in *folder*."""
    _below[:] = [folder]


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder; raises ``UsageError`` if none can be made."""
    try:
        if _below:
            return tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=_below[0])
        _remove_abandoned(Path(tempfile.gettempdir()))
        return _held_folder()
    except OSError as error:
        msg = (
            f"no temporary folder can be made, {(error.strerror or str(error)).lower()}; "
            "set TMPDIR to a folder that can be written to"
        )
        raise UsageError(msg, ErrorId.GP614) from None


def _held_folder() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX)
    # It gets its name when it is locked: without a lock it would look abandoned.
    part = Path(made.name, f"{OWNER_LOCK}.part")
    part.touch()
    weakref.finalize(made, os.close, hold(part))
    part.rename(part.with_suffix(""))
    return made


def hold(lock: Path) -> int:
    """Keep what the file *lock* is in from being removed, until its descriptor is closed."""
    descriptor = _opened(lock)
    try_flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def try_flock(descriptor: int, how: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> bool:
    """Lock an open file, if no other process has it; return whether it is locked.

    Where the file system has no locks, and for a folder on NFS, it counts as locked.
    """
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def hold_to_the_end(folder: Path) -> None:
    """Keep *folder* for as long as this process runs, also without its parent.

    One below that of a server has no lock of its own.
    """
    for place in (folder, folder.parent):
        with suppress(FileNotFoundError):
            hold(place / OWNER_LOCK)
            return


def _opened(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


@cache
def _remove_abandoned(place: Path) -> None:
    """Remove the folders in *place* that processes of ours left which were killed."""
    for folder in place.glob(f"{TEMPORARY_PREFIX}*"):
        with suppress(OSError):
            if not is_planted(folder):
                _remove_unheld(folder)


def _remove_unheld(folder: Path) -> None:
    """Remove *folder*; raises ``OSError`` if it has no lock, or a process holds it."""
    descriptor = _opened(folder / OWNER_LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


PRIVATE: Final = 0o700
OTHERS_MAY: Final = 0o077
"""Bits of a mode by which anybody but the owner may do something."""


class PlantedError(OSError):
    """A file or folder that is not ours; its text says what it is: ``found ...``."""


def refuse_link(path: Path) -> None:
    """Raise ``PlantedError`` if *path* itself is a symbolic link."""
    if path.is_symlink():
        msg = f"a link to {path.readlink()}"
        raise PlantedError(msg)


def no_link(folder: Path) -> Path:
    """Return *folder*, which runs write to and delete from.

    Raises ``UsageError`` if it is a link: only somebody else makes one of it.
    """
    try:
        refuse_link(folder)
    except PlantedError as planted:
        msg = f"{folder}: expected a folder of this project, found {planted}: remove it"
        raise UsageError(msg, ErrorId.GP526) from None
    return folder


def make_private(folder: Path) -> None:
    """Create *folder* for this user alone, or make sure that it is such a folder.

    Raises ``OSError``, a ``PlantedError`` where it is a link or another user's.
    """
    refuse_link(folder)
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    # By descriptor, not by path: owner and mode are those of the folder that is used.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        _refuse_other(status)
        if status.st_mode & OTHERS_MAY:
            os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)


def open_own(path: Path) -> int:
    """Open *path* to read and write, created for this user alone where it is not there.

    Raises ``OSError``, a ``PlantedError`` where it is a link, no file or another's.
    """
    refuse_link(path)
    # O_NONBLOCK: a pipe in its place would wait for ever for somebody to write.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        _refuse_odd(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_planted(folder: Path) -> bool:
    """Whether *folder* is there and is a link or another user's."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid()


def _refuse_odd(status: os.stat_result) -> None:
    _refuse_other(status)
    if not stat.S_ISREG(status.st_mode):
        msg = "no regular file"
        raise PlantedError(msg)
    # A hard link made by another user names a file elsewhere that a write would change.
    if status.st_nlink > 1:
        msg = "a file with a second name elsewhere"
        raise PlantedError(msg)


def _refuse_other(status: os.stat_result) -> None:
    if status.st_uid != os.getuid():
        msg = f"one of user {status.st_uid}"
        raise PlantedError(msg)


def found_above(folder: Path, name: Path) -> str | None:
    """Return the way from *folder* to the nearest folder above it that has *name*.

    What lies above the repository of *folder* belongs to another project.
    """
    for below, path in pairwise((folder, *folder.parents)):
        if (below / ".git").exists():
            return None
        if (path / name).exists():
            return os.path.relpath(path, folder)
    return None


# The name of a file that keeps what was seen of a test.

READABLE: Final = 75
"""Characters of the test's own name: with digest and suffix there are less than 100."""


def file_name(test: str) -> str:
    """Return a unique name for every file system: the test's end, then a digest."""
    readable = re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII)[-READABLE:].strip("-.")
    encoded = test.encode("utf-8", "surrogatepass")
    return "-".join(
        filter(None, (readable, blake2b(encoded, digest_size=4).hexdigest()))
    )


def shown_path(path: Path, root: Path) -> str:
    """*path* from *root* on, as node ids are, or whole if it is elsewhere."""
    inside = path.is_relative_to(root)
    return path.relative_to(root).as_posix() if inside else str(path)
