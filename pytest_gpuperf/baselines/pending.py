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


def write_pending(folder: Path, baselines: Baselines) -> Path:
    """Write *baselines* into *folder*, which git ignores if it is created here.

    Returns the file's path. Raises ``BaselineError``.
    """
    path = pending_path(folder, baselines.hardware)
    try:
        make_ignored(folder)
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        msg = f"{folder}: cannot be created, {cause}; make its parent writable"
        raise BaselineError(msg) from error
    write(path, dumps(baselines))
    return path
