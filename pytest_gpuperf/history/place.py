"""The location of a history: a folder, or any URL that fsspec supports.

Files are written once, under names that no two runs share, so writers need no lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from typing import Final
from typing import Protocol
from urllib.parse import unquote
from urllib.parse import urlsplit

from ..baselines.store import replace_file
from ..errors import ErrorId
from ..errors import UsageError
from ..files import read_regular
from .document import MOST_PACKED_BYTES


PART_SUFFIX: Final = ".jsonl.gz"

TOO_LARGE: Final = f"it is larger than {MOST_PACKED_BYTES} bytes"

AT_ONCE: Final = 256
"""Files that are requested from a remote place together."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::|://)")


class HistoryPlace(Protocol):
    """Stores files under names with ``/`` in them.

    Its methods raise ``UsageError`` if the place cannot be reached.
    """

    def files(self) -> Mapping[str, int]:
        """Sizes in bytes of all files by name, but for hidden ones."""

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
        """Yield the content of each file, or the text that says why there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Put a new file there: whole, or not at all as far as the place can."""


def is_url(location: str) -> bool:
    """Whether *location* is meant for fsspec, and not a folder."""
    return bool(_URL.match(location))


def place_at(location: str) -> HistoryPlace:
    """Return the place that a folder or URL names; nothing is asked of it yet."""
    if location.startswith("file://"):
        return Folder(Path(unquote(urlsplit(location).path)))
    return Remote(location) if is_url(location) else Folder(Path(location))


def shown(location: str) -> str:
    """Return *location* without the passwords that a URL may contain."""
    return re.sub(r"(?<=://)[^/@]*@|\?.*", "", location)


class Folder:
    """A folder of this machine, or one that it has mounted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self) -> Mapping[str, int]:
        try:
            return dict(_sizes(str(self._path), ""))
        except FileNotFoundError:
            msg = f"{self._path}: there is no such folder; expected that of a history"
        except NotADirectoryError:
            msg = f"{self._path}: expected the folder of a history, found a file"
        except OSError as error:
            msg = f"{self._path}: cannot be read, {_cause(error)}"
        raise UsageError(msg, ErrorId.GP518)

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
        for name in names:
            try:
                content: bytes | str = _whole(self._path / name)
            except OSError as error:
                content = f"it cannot be read, {_cause(error)}"
            yield name, content

    def write(self, name: str, content: bytes) -> None:
        path = self._path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content)
        except OSError as error:
            msg = f"{self._path}: cannot be written, {_cause(error)}"
            raise UsageError(msg, ErrorId.GP519) from None


def _whole(path: Path) -> bytes | str:
    """Read a file, or say that it is too large to be one of a history."""
    # One byte more than allowed shows that a file is too large without reading it
    # whole.
    content = read_regular(path, MOST_PACKED_BYTES + 1)
    if len(content) > MOST_PACKED_BYTES:
        return TOO_LARGE
    return content


def _sizes(folder: str, above: str) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _sizes(entry.path, f"{above}{entry.name}/")
            elif entry.is_file():
                with suppress(FileNotFoundError):  # somebody tidies up
                    yield f"{above}{entry.name}", entry.stat().st_size


def _cause(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


class Remote:
    """A URL of fsspec, on which torch depends; protocols may need more packages."""

    def __init__(self, url: str) -> None:
        self._url = url

    def files(self) -> Mapping[str, int]:
        try:
            system, root = self._opened()
            found = system.find(root, detail=True) if system.exists(root) else {}
        except Exception as error:  # noqa: BLE001 - each protocol has its own
            raise self._unreachable(error) from None
        names = {_below(root, path): entry for path, entry in found.items()}
        return {
            name: int(entry.get("size") or 0)
            for name, entry in names.items()
            if not any(part.startswith(".") for part in name.split("/"))
        }

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
        for start in range(0, len(names), AT_ONCE):
            yield from self._read(names[start : start + AT_ONCE])

    def _read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
        try:
            system, root = self._opened()
            paths = [f"{root}/{name}" for name in names]
            # One request for all: an asynchronous protocol reads them side by side.
            found = system.cat(paths, on_error="return")
        except Exception as error:  # noqa: BLE001
            raise self._unreachable(error) from None
        for name, path in zip(names, paths, strict=True):
            content = found.get(path, FileNotFoundError("it is gone"))
            yield name, content if isinstance(content, bytes) else self._why(content)

    def write(self, name: str, content: bytes) -> None:
        try:
            system, root = self._opened()
            path = f"{root}/{name}"
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.pipe_file(path, content)
        except Exception as error:  # noqa: BLE001
            raise self._unreachable(error) from None

    def _opened(self) -> tuple[Any, str]:
        # Imported here: a history in a folder needs no fsspec.
        from fsspec.core import url_to_fs

        system, root = url_to_fs(self._url)
        # fsspec caches listings and file systems for the life of the process.
        system.invalidate_cache()
        return system, str(root).rstrip("/")

    def _unreachable(self, error: Exception) -> UsageError:
        msg = f"{shown(self._url)}: cannot be reached, {self._described(error)}"
        return UsageError(msg, ErrorId.GP518)

    def _why(self, error: object) -> str:
        return f"it cannot be read, {self._described(error)}"

    def _described(self, error: object) -> str:
        """Describe *error* in one line and without the URL's passwords."""
        text = str(error).replace(self._url, shown(self._url))
        first, *_ = text.splitlines() or [""]
        return f"{type(error).__name__}: {first}"


def _below(root: str, path: str) -> str:
    return path.removeprefix(root).lstrip("/")
