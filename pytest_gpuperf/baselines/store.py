"""Baseline files: one a hardware, and the operations of each test; replaced whole."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from ..errors import BaselineError, ErrorId
from ..files import (
    PlantedError,
    file_name,
    read_regular,
    read_regular_text,
    refuse_link,
    try_flock,
)
from ..judge.operations import Digest
from ..model.baseline import Baselines, Entry
from ..model.codec import decode
from ..model.environment import Hardware
from ..model.finding import CALLED, LineWork, Location, Tally
from ..settings import ARTEFACTS
from ..sharing.device_lock import LOCK_PAUSE_SECONDS
from .format import LINE, dumps, key_of_source, line_of, loads


# Replace a file whole or not at all, whoever else writes it or reads it.


def replace_file(path: Path, content: bytes) -> None:
    """Write *content* to *path*; raises ``OSError``, and leaves no draft then."""
    # In the same folder: a rename is atomic only within a file system.
    draft = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
    try:
        # Exclusive: the random name must not be a link that somebody has put there.
        with draft.open("xb") as file:
            _own_like(path, file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # After fsync: otherwise a power cut could leave the new name with no content.
        draft.replace(path)
    except BaseException:
        # Also for KeyboardInterrupt, or drafts would pile up next to the baselines.
        draft.unlink(missing_ok=True)
        raise
    # The new file is in place; some file systems cannot sync a folder.
    with suppress(OSError):
        _sync_folder(path.parent)


def _own_like(path: Path, handle: int) -> None:
    """Give the file at *handle* the owner and the mode of the one at *path*, if it is there."""
    with suppress(FileNotFoundError):
        old = path.lstat()
        if stat.S_ISREG(old.st_mode):
            # Only root may give a file away.
            with suppress(PermissionError):
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Folders that git leaves alone.


def make_ignored(folder: Path) -> None:
    """Create *folder* with a ``.gitignore`` that covers all of it, unless it exists.

    Raises ``OSError``, a ``PlantedError`` where the folder that runs create is a link:
    somebody else put it there. One that a user names may be.
    """
    if folder.name == ARTEFACTS:
        refuse_link(folder)
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")


LOCK_SECONDS: Final = 600.0
"""How long to wait for another run to finish its writing, itself a matter of ms.

The holder is alive, as the kernel frees the lock of a dead process. On a busy machine it
may get no core for long, and giving up would lose the measurements.
"""


_INTACT: Final = "what was stored before is unchanged; solve that and run again"


def path_of(folder: Path, hardware: Hardware) -> Path:
    """File of the baselines of *hardware*."""
    return folder / f"{hardware.key}.json"


def read(folder: Path, hardware: Hardware) -> Baselines:
    """Read the baselines of *hardware*; none if there is no file.

    Raises ``BaselineError`` if the file cannot be read, is no baseline file, or
    was measured on other hardware.
    """
    path = path_of(folder, hardware)
    text = _text_of(path)
    if text is None:
        path = folder / f"{hardware.old_key}.json"
        text = _text_of(path)
    if text is None:
        return Baselines(hardware=hardware)
    found = loads(text, str(path))
    if found.hardware.key != hardware.key:
        msg = (
            f"{path}: measured on {found.hardware.kind.value} {found.hardware.name}, "
            f"but the name says {hardware.key}; rename it to {found.hardware.key}.json"
        )
        raise BaselineError(msg, ErrorId.GP504)
    return found


def stored_keys(folder: Path) -> set[str]:
    """Return the calls that have a baseline on any hardware, as far as files are intact.

    Only names are needed here; a broken file is reported when it is read.
    """
    found: set[str] = set()
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError):
            found.update(json.loads(read_regular(path))["tests"])
    return found


def write(path: Path, text: str) -> None:
    """Replace the file at *path* by *text*, creating its folder.

    After a crash either the old or the new text is there, whole. Raises
    ``BaselineError`` if it cannot be written; the old file is then untouched.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> BaselineError:
    msg = f"{path}: cannot be written, {_cause(error)}; {_INTACT}"
    return BaselineError(msg, ErrorId.GP506)


def update(
    folder: Path,
    hardware: Hardware,
    changes: Mapping[str, Entry],
    removed: Collection[str] = (),
    *,
    lock_folder: Path,
) -> Baselines:
    """Merge *changes* into the stored baselines and drop the tests in *removed*.

    Returns what is stored now. Runs that update at the same time take turns, so
    none loses what another stored. Raises ``BaselineError``.
    """
    path = path_of(folder, hardware)
    with _turn(lock_folder, hardware), _only_writer(path):
        # Read again under the lock: another run may have stored tests since this one
        # began.
        old = read(folder, hardware)
        kept = {t: entry for t, entry in old.entries.items() if t not in removed}
        new = Baselines(hardware=hardware, entries={**kept, **changes})
        _rename_old(folder, hardware)
        # An unchanged file keeps its time stamp, and its diff stays empty.
        if old.is_old or new.entries != old.entries:
            # What a link leads to has just been read, and is a baseline.
            write(Path(os.path.realpath(path)), dumps(new))
    return new


def _rename_old(folder: Path, hardware: Hardware) -> None:
    """Rename files that have the key of 0.2.0."""
    path, old = path_of(folder, hardware), folder / f"{hardware.old_key}.json"
    if path.exists() or not old.exists():
        return
    old.rename(path)
    operations = folder / "operations"
    with suppress(FileNotFoundError):
        (operations / hardware.old_key).rename(operations / hardware.key)


def _text_of(path: Path) -> str | None:
    try:
        return read_regular_text(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"{path}: cannot be read, {_cause(error)}; make it a readable file"
        raise BaselineError(msg, ErrorId.GP501) from error
    except UnicodeDecodeError as error:
        msg = f"{path}: not UTF-8 text; restore the file from version control"
        raise BaselineError(msg, ErrorId.GP501) from error


@contextmanager
def _turn(lock_folder: Path, hardware: Hardware) -> Iterator[None]:
    # Imported here: only a run that writes baselines needs it.
    from filelock import FileLock

    path = lock_folder / f"{hardware.key}.lock"
    lock = FileLock(path)
    try:
        make_ignored(lock_folder)
        # filelock opens the path, and would create or truncate what a link points to.
        refuse_link(path)
        with _without_locks():
            lock.acquire(timeout=LOCK_SECONDS)
    except OSError as error:  # filelock's Timeout is one
        msg = f"{path}: cannot be locked, {_cause(error)}; {_INTACT}"
        raise BaselineError(msg, ErrorId.GP507) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _without_locks() -> Iterator[None]:
    """Go on where the file system has no locks."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOLCK, errno.EOPNOTSUPP}:
            raise


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Wait until no other process writes to the folder of *path*, by whatever name."""
    # The folder itself is locked: a file would be one more in the user's repository.
    deadline = time.monotonic() + LOCK_SECONDS
    with ExitStack() as undo:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path.parent, os.O_RDONLY)
            undo.callback(os.close, handle)
            while not try_flock(handle):
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(LOCK_PAUSE_SECONDS)
        except OSError as error:
            raise _unwritten(path, error) from error
        yield


def _cause(error: OSError) -> str:
    if isinstance(error, PlantedError):
        return f"it or its folder is {error}: remove that"
    if isinstance(error, TimeoutError):
        return f"another run has had it for {LOCK_SECONDS:.0f} s"
    return (error.strerror or str(error)).lower()


# The pending file: measurements of a run that can be accepted, never in git.


def pending_path(folder: Path, hardware: Hardware) -> Path:
    """File of what was measured last on *hardware*."""
    return folder / f"pending-{hardware.key}.json"


def write_pending(folder: Path, baselines: Baselines) -> Path:
    """Write *baselines* into *folder* as ``write_ignored`` does; return the file's path."""
    path = pending_path(folder, baselines.hardware)
    write_ignored(path, dumps(baselines))
    return path


def write_ignored(path: Path, text: str) -> None:
    """Replace the file at *path*; its folder is ignored by git if it is created here.

    Raises ``BaselineError``.
    """
    try:
        make_ignored(path.parent)
    except PlantedError as planted:
        msg = f"{path.parent}: expected a folder of this project, found {planted}: remove it"
        raise BaselineError(msg, ErrorId.GP526) from None
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        is_taken = isinstance(error, (FileExistsError, NotADirectoryError))
        remedy = "rename the file" if is_taken else "make its parent writable"
        msg = f"{path.parent}: cannot be created, {cause}; {remedy}"
        raise BaselineError(msg, ErrorId.GP506) from error
    write(path, text)


# What the lines of a step ran when its baseline was recorded, in a file next to it.
#
# Each test has a file of its own, `operations/<hardware>/<test>.json`, with a row for
# each line of source. It only explains a failure: one that is missing, broken, or of
# another test explains nothing, and is no error. It has no numbers of lines, so it
# changes with the operations alone.


OPERATIONS_SCHEMA: Final = 2
"""Version of the format; a file of another one is replaced by the next refresh."""


def operations_path(folder: Path, hardware: Hardware, test: str) -> Path:
    """File with the operations of *test*, in the *folder* of the baselines."""
    return folder / "operations" / hardware.key / f"{file_name(test)}.json"


def read_operations(
    folder: Path, hardware: Hardware, test: str, entry: Entry | None
) -> tuple[LineWork, ...]:
    """Return what was stored with *entry*; nothing if that is not there, or is broken."""
    if entry is None:
        return ()
    try:
        raw = json.loads(read_regular_text(operations_path(folder, hardware, test)))
        if (raw["schema"], raw["test"]) != (OPERATIONS_SCHEMA, test):
            return ()
        return _read(raw)
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def keep_operations(
    folder: Path,
    hardware: Hardware,
    entries: Mapping[str, Entry],
    digests: Mapping[str, Digest],
    removed: Collection[str] = (),
) -> None:
    """Store what was run when *entries* were recorded; raises ``BaselineError``.

    A file that cannot be read is deleted, and those of *removed* tests.
    """
    for planted in (folder / "operations", folder / "operations" / hardware.key):
        if planted.is_symlink():
            msg = (
                f"{planted}: expected a folder of this project, found a link: remove it"
            )
            raise BaselineError(msg, ErrorId.GP526)
    for test, entry in entries.items():
        digest = digests.get(test, ())
        known = read_operations(folder, hardware, test, entry)
        path = operations_path(folder, hardware, test)
        if digest:
            write(path, _text(test, digest))
        elif not known:
            path.unlink(missing_ok=True)
    for test in removed:
        operations_path(folder, hardware, test).unlink(missing_ok=True)


def _text(test: str, digest: Digest) -> str:
    """Give each line of source a row, so that a diff of the file shows what changed."""
    raw: dict[str, Any] = {"schema": OPERATIONS_SCHEMA, "test": test}
    for line in digest:
        at, inner = line.location, line.innermost
        key = key_of_source(
            at.file if at else "", at.function if at else "", line.source
        )
        where = f" | {inner.file} | {inner.function}" if inner else ""
        # A call runs more wherever what it calls does: that it is there is enough.
        ops = {CALLED: (1, 0)} if CALLED in line.ops else dict(line.ops)
        raw.setdefault(key, {})[f"{line.module}{where}"] = ops
    rows = (f"{_row(key)}: {_row(value)}" for key, value in sorted(raw.items()))
    return "{\n" + ",\n".join(f" {row}" for row in rows) + "\n}\n"


_row: Final = json.JSONEncoder(sort_keys=True).encode


def _read(raw: Mapping[str, Any]) -> tuple[LineWork, ...]:
    return tuple(
        LineWork(
            module=module,
            location=_place(file, function),
            innermost=_place(*inner.split(" | ", 1)) if inner else None,
            source=text,
            ops=decode(dict[str, Tally], ops),
        )
        for key, row in raw.items()
        if key.startswith(LINE)
        for file, function, text in [line_of(key)]
        for at, ops in dict(row).items()
        for module, _, inner in [at.partition(" | ")]
    )


def _place(file: str, function: str) -> Location | None:
    return Location(file=file, line=0, function=function) if file else None
