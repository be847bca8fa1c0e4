"""Edited sources in place of files, in the process of a trial.

The files of the project stay as they are, and the program finds its data, its modules and
``__file__`` where they were. Only what Python reads as source is another text.
"""

from __future__ import annotations

import linecache
import os
import tokenize
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from io import BytesIO
from pathlib import Path
from typing import Any

from ..files import read_regular


def text_of(file: Path) -> str:
    """Return its text as Python decodes it, with the line ends that it has.

    Raises ``OSError``, ``SyntaxError`` or ``UnicodeDecodeError`` if there is none.
    """
    content = read_regular(file)
    return content.decode(_encoding(content))


def encoded(text: str, file: Path) -> bytes:
    """Return *text* in the encoding that *file* has."""
    return text.encode(_encoding(read_regular(file)))


def _encoding(content: bytes) -> str:
    return tokenize.detect_encoding(BytesIO(content).readline)[0]


def put_in_place(edited: Mapping[str, str]) -> None:
    """Let this process read the texts that are *edited*, by real path, as sources.

    No bytecode of theirs is read or written.
    """
    loader: Any = SourceFileLoader
    lines: Any = linecache
    read, look, cache = loader.get_data, loader.path_stats, lines.updatecache

    def get_data(self: Any, path: str) -> Any:
        text = edited.get(os.path.realpath(path))
        return read(self, path) if text is None else encoded(text, Path(path))

    def path_stats(self: Any, path: str) -> Any:
        if os.path.realpath(path) in edited:
            raise OSError(path)  # or the bytecode of the file would be taken
        return look(self, path)

    def updatecache(filename: str, *arguments: Any) -> Any:
        text = edited.get(os.path.realpath(filename))
        if text is None:
            return cache(filename, *arguments)
        found = text.splitlines(keepends=True)
        linecache.cache[filename] = (len(text), None, found, filename)
        return found

    loader.get_data, loader.path_stats = get_data, path_stats
    lines.updatecache = updatecache
