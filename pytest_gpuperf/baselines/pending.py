"""What a run measured, ready to be accepted: a file beside the test run, never in git."""

from __future__ import annotations

from pathlib import Path

from ..errors import BaselineError
from ..model.baseline import Baselines
from ..model.environment import Hardware
from .document import dumps
from .ignored import make_ignored
from .store import write


def pending_path(folder: Path, hardware: Hardware) -> Path:
    """File of what was measured last on *hardware*."""
    return folder / f"pending-{hardware.key}.json"


def write_pending(
    folder: Path, baselines: Baselines, *, are_read: bool = False
) -> Path:
    """Write *baselines* into *folder* as ``write_ignored`` does; return the file's path.

    *are_read* says that they come out of such files.
    """
    path = pending_path(folder, baselines.hardware)
    write_ignored(path, dumps(baselines, are_read=are_read))
    return path


def write_ignored(path: Path, text: str) -> None:
    """Replace the file at *path*, whose folder git ignores if it is created here.

    Raises ``BaselineError``.
    """
    try:
        make_ignored(path.parent)
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        msg = f"{path.parent}: cannot be created, {cause}; make its parent writable"
        raise BaselineError(msg) from error
    write(path, text)
