"""Texts that may leave this machine: no absolute path stands in them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final


FOLDERS: Final = re.compile(r"(?<![\w./\\-])/(?:[^/\s|():\"',;<>\[\]=]+/)+")
"""The folders of an absolute path inside a text."""

SEPARATOR: Final = "|"
"""Between the parts of a marker, of which one is a file."""

Portable = Callable[[str], str]
"""Makes a text portable."""


def portable_from(root: Path) -> Portable:
    """Return what names files from *root* on, from where they are imported, or from home.

    Files elsewhere keep their names alone.
    """
    starts = "|".join(map(re.escape, sorted(_starts(root), key=len, reverse=True)))
    known = re.compile(rf"(?<![\w./\\-])(?:{starts})")

    @cache
    def portable(text: str) -> str:
        if os.sep not in text:
            return text
        parts = known.sub("", text).split(SEPARATOR)
        return SEPARATOR.join(map(_bare, parts))

    return portable


def _starts(root: Path) -> Iterator[str]:
    home = str(Path("~").expanduser())
    for place in {str(root), os.path.realpath(root), home, *sys.path}:
        if Path(place).is_absolute() and place.rstrip(os.sep):
            yield f"{place.rstrip(os.sep)}{os.sep}"


def _bare(text: str) -> str:
    if Path(text).is_absolute():
        return text.rpartition(os.sep)[2] or text.strip(os.sep)
    return FOLDERS.sub("", text)
