"""Replace a file whole or not at all, whoever else writes it or reads it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex


def replace_file(path: Path, content: bytes) -> None:
    """Write *content* to *path*; raises ``OSError``, and leaves no draft then."""
    draft = path.with_name(f".{path.name}.{token_hex(4)}.tmp")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    # The new file is in place; some file systems cannot sync a folder.
    with suppress(OSError):
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
