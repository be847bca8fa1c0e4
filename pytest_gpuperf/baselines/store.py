"""Baseline files: one a hardware, replaced whole or not at all."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..errors import BaselineError
from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.environment import Hardware
from .atomic import replace_file
from .document import dumps
from .document import loads
from .ignored import make_ignored


LOCK_SECONDS: Final = 60.0
"""How long to wait for another run to finish its writing, itself a matter of ms."""


_INTACT: Final = "what was stored before is intact, run again once that is solved"


def path_of(folder: Path, hardware: Hardware) -> Path:
    """File of the baselines of *hardware*."""
    return folder / f"{hardware.key}.json"


def read(folder: Path, hardware: Hardware) -> Baselines:
    """Read the baselines of *hardware*; none where there is no file.

    Raises ``BaselineError`` where the file cannot be read, is no baseline file, or
    was measured on other hardware.
    """
    path = path_of(folder, hardware)
    text = _text_of(path)
    if text is None:
        return Baselines(hardware=hardware)
    found = loads(text, str(path))
    if found.hardware.key != hardware.key:
        msg = (
            f"{path}: measured on {found.hardware.kind.value} {found.hardware.name}, "
            f"but the name says {hardware.key}; rename it to {found.hardware.key}.json"
        )
        raise BaselineError(msg)
    return found


def write(path: Path, text: str) -> None:
    """Replace the file at *path* by *text*, creating its folder.

    After a crash either the old or the new text is there, whole. Raises
    ``BaselineError`` where it cannot be written; the old file is then untouched.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode("utf-8"))
    except OSError as error:
        msg = f"{path}: cannot be written, {_cause(error)}; {_INTACT}"
        raise BaselineError(msg) from error


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
    with _turn(lock_folder, hardware):
        old = read(folder, hardware)
        kept = {t: entry for t, entry in old.entries.items() if t not in removed}
        new = Baselines(hardware=hardware, entries={**kept, **changes})
        if new.entries != old.entries:
            write(path_of(folder, hardware), dumps(new))
    return new


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"{path}: cannot be read, {_cause(error)}; make it a readable file"
        raise BaselineError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{path}: no UTF-8 text; restore the file from version control"
        raise BaselineError(msg) from error


@contextmanager
def _turn(lock_folder: Path, hardware: Hardware) -> Iterator[None]:
    from filelock import FileLock

    path = lock_folder / f"{hardware.key}.lock"
    lock = FileLock(path)
    try:
        make_ignored(lock_folder)
        lock.acquire(timeout=LOCK_SECONDS)
    except OSError as error:  # filelock's Timeout is one
        msg = f"{path}: cannot be locked, {_cause(error)}; {_INTACT}"
        raise BaselineError(msg) from error
    try:
        yield
    finally:
        lock.release()


def _cause(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"another run has held it for {LOCK_SECONDS:.0f} s"
    return (error.strerror or str(error)).lower()
