"""Results in one archive that is small enough to be carried, without names of the machine."""

from __future__ import annotations

import io
import os
import platform
import re
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final


MOST_BYTES: Final = 16 * 2**20
"""Of the archive: what a machine that is lent gives back of one file."""

ROOT: Final = Path(__file__).resolve().parents[2]


def pack(folder: Path, archive: Path, most_bytes: int = MOST_BYTES) -> list[str]:
    """Replace *archive* by one of all files in *folder*; return the names left out.

    The largest are left out until the archive is small enough.
    """
    files = sorted(
        (path for path in folder.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    made = archive.with_name("results.part")
    left_out: list[str] = []
    write(folder, files, made)
    while made.stat().st_size > most_bytes and files:
        left_out.append(str(files.pop().relative_to(folder)))
        write(folder, files, made)
    made.replace(archive)
    return left_out


def write(folder: Path, files: Sequence[Path], archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as opened:
        for path in sorted(files):
            content = cleaned(path.read_bytes())
            member = tarfile.TarInfo(str(Path("results", path.relative_to(folder))))
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))


def cleaned(content: bytes) -> bytes:
    """Return text without this machine's places; what is no text stays as it is."""
    try:
        return without_places(content.decode("utf-8")).encode("utf-8")
    except UnicodeDecodeError:
        return content


def without_places(text: str) -> str:
    """Return *text* without the folders and the name of this machine."""
    for place, shown in places():
        text = text.replace(place, shown)
    return re.sub(rf"\b{re.escape(platform.node())}\b", "HOST", text)


def places() -> tuple[tuple[str, str], ...]:
    """Folders, longest names first, and what stands for them."""
    home = str(Path.home())
    return (
        (f"{ROOT}{os.sep}", ""),
        (str(ROOT), "."),
        (f"{tempfile.gettempdir()}{os.sep}", "TMP/"),
        *(((f"{home}{os.sep}", "~/"),) if home != os.sep else ()),
    )
