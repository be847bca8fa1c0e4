"""Which lock a name stands for, so that processes that cannot see each other can tell.

Ranks on several machines have locks of the same name, but where containers or network
namespaces share a folder they have the same lock.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import UsageError


FILE: Final = "id"


def identity_of(folder: Path, name: str) -> str:
    """Return the same text where, and only where, *name* in *folder* is the same lock.

    Raises ``UsageError`` where *folder* cannot be written to.
    """
    path = folder / FILE
    try:
        if not path.exists():
            _write_once(path)
        return f"{path.read_text(encoding='utf-8')}/{name}"
    except OSError as error:
        msg = f"{path}: expected a file that names the folder, found {error.strerror}"
        raise UsageError(msg) from None


def _write_once(path: Path) -> None:
    """Never let another process read half a file, nor a second name."""
    token = uuid.uuid4().hex
    part = path.with_name(f"{FILE}.{token}")
    part.write_text(token, encoding="utf-8")
    try:
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()
