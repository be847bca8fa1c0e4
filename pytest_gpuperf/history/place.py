"""Where a history lies: a folder, or whatever fsspec has a URL for.

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

from ..baselines.atomic import replace_file
from ..errors import UsageError


SUFFIX: Final = ".jsonl.gz"

AT_ONCE: Final = 256
"""Files that are asked of a remote place together."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::|://)")


class Place(Protocol):
    """Holds files under names with ``/`` in them.

    Its methods raise ``UsageError`` where the place cannot be reached.
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


def place_at(location: str) -> Place:
    """Return the place that a folder or URL names; nothing is asked of it yet."""
    if location.startswith("file://"):
        return Folder(Path(unquote(urlsplit(location).path)))
    return Remote(location) if is_url(location) else Folder(Path(location))


def shown(location: str) -> str:
    """Return *location* without the passwords that a URL may hold."""
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
        raise UsageError(msg)

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
        for name in names:
            try:
                content: bytes | str = (self._path / name).read_bytes()
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
            raise UsageError(msg) from None


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
    """A URL of fsspec, which torch brings; its protocol may need a package more."""

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
        from fsspec.core import url_to_fs

        system, root = url_to_fs(self._url)
        system.invalidate_cache()
        return system, str(root).rstrip("/")

    def _unreachable(self, error: Exception) -> UsageError:
        msg = f"{shown(self._url)}: cannot be reached, {self._told(error)}"
        return UsageError(msg)

    def _why(self, error: object) -> str:
        return f"it cannot be read, {self._told(error)}"

    def _told(self, error: object) -> str:
        """Say what *error* says, in a line and without the URL's passwords."""
        text = str(error).replace(self._url, shown(self._url))
        first, *_ = text.splitlines() or [""]
        return f"{type(error).__name__}: {first}"


def _below(root: str, path: str) -> str:
    return path.removeprefix(root).lstrip("/")
