"""Installed packages by their content, kept while they fit under a limit."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final


GIB: Final = 2**30

MOST_BYTES: Final = 8 * GIB
"""Two builds of torch with CUDA, and a few hundred small packages."""

UNFINISHED: Final = "new-"
"""How the folders begin that are being filled, or removed."""

LOCK: Final = ".lock"
WHAT_IT_HAS: Final = ".packages"
"""Beside the packages: the lock of who uses them, and what they are called."""


def default_place() -> Path:
    """Return where caches of this user are."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "gpuperf", "packages")


class PackageCache:
    """The folders at a *place*; one that is in use is never removed."""

    def __init__(self, place: Path, most_bytes: int = MOST_BYTES) -> None:
        self._place = place
        self._most_bytes = most_bytes
        self._in_use = ExitStack()

    def close(self) -> None:
        """Let others remove what this process has used."""
        self._in_use.close()

    def folder(self, packages: Sequence[str], install: Callable[[Path], None]) -> Path:
        """Return the folder with *packages*, which *install* fills if there is none."""
        self._place.mkdir(parents=True, exist_ok=True)
        folder = self._place / _key(packages)
        is_new = False
        while not self._is_kept(folder):
            self._fill(folder, packages, install)
            is_new = True
        os.utime(folder)
        if is_new:
            self.trim(self._most_bytes)
        return folder

    def _is_kept(self, folder: Path) -> bool:
        """Whether *folder* is there, and stays as long as this process uses it."""
        with suppress(FileNotFoundError):
            self._in_use.enter_context(_locked(folder, fcntl.LOCK_SH))
        # Who waited for the lock may have waited for its removal.
        return (folder / WHAT_IT_HAS).exists()

    def _fill(
        self, folder: Path, packages: Sequence[str], install: Callable[[Path], None]
    ) -> None:
        # Nobody sees half of it, an interrupt leaves nothing, and what a killed process
        # leaves nobody has locked.
        scratch = Path(mkdtemp(prefix=UNFINISHED, dir=self._place))
        (scratch / LOCK).touch()
        try:
            with _locked(scratch, fcntl.LOCK_EX):
                install(scratch)
                names = " ".join(packages)
                (scratch / WHAT_IT_HAS).write_text(names, encoding="utf-8")
                if not (folder / WHAT_IT_HAS).exists():
                    shutil.rmtree(folder, ignore_errors=True)
                # Another process may have made the same meanwhile.
                with suppress(OSError):
                    scratch.replace(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def kept(self) -> dict[Path, int]:
        """Return the bytes of all folders, those first that were used last."""
        found: dict[Path, tuple[float, int]] = {}
        for folder in (f.parent for f in self._place.glob(f"*/{WHAT_IT_HAS}")):
            # Another process may remove one while it is looked at.
            with suppress(FileNotFoundError):
                sizes = (f.lstat().st_size for f in folder.rglob("*") if f.is_file())
                found[folder] = folder.stat().st_mtime, sum(sizes)
        whole = [each for each in found if not each.name.startswith(UNFINISHED)]
        newest = sorted(whole, key=lambda each: found[each][0], reverse=True)
        return {folder: found[folder][1] for folder in newest}

    def trim(self, most_bytes: int) -> list[int]:
        """Remove what was not used for longest until the rest fits; return what sizes went.

        What processes that were killed have left goes as well.
        """
        for lock in self._place.glob(f"{UNFINISHED}*/{LOCK}"):
            _removed(lock.parent)
        gone, total = [], 0
        for folder, size_bytes in self.kept().items():
            total += size_bytes
            if total > most_bytes and _removed(folder):
                gone.append(size_bytes)
                total -= size_bytes
        return gone


def _key(packages: Sequence[str]) -> str:
    """Name a folder by what decides which files are in it."""
    platform = (sys.implementation.cache_tag, sysconfig.get_platform())
    content = json.dumps([*platform, *sorted(packages)]).encode()
    return hashlib.sha256(content).hexdigest()[:20]


def _removed(folder: Path) -> bool:
    """Remove *folder*, unless somebody uses it."""
    try:
        with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            # Under its own name it is whole or not there, whatever ends this process.
            going = folder.with_name(f"{UNFINISHED}{folder.name}")
            folder.rename(going)
            shutil.rmtree(going)
    except OSError:
        return False
    return True


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, how)
        yield
