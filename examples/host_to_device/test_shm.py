"""A dataset in ``/dev/shm`` is read from disk once, when it is copied there.

On disk the page cache does the same for as long as it has room. The kernel's own count of
bytes read tells the three apart, and time does not have to: where the disk has a cache of
its own, all take as long. Linux only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest


SIZE = 8 * 2**20
IO = Path("/proc/self/io")
SHM = Path("/dev/shm")  # noqa: S108, what this file is about


def read_from_disk(path):
    """Read *path* and return how many bytes of that this process took from a disk."""
    before = _read_bytes()
    assert len(path.read_bytes()) == SIZE
    return _read_bytes() - before


def _read_bytes():
    lines = dict(line.split(": ") for line in IO.read_text().splitlines())
    return int(lines["read_bytes"])


def forget(path):
    """Take *path* out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def shm():
    if not IO.exists() or not os.access(SHM, os.W_OK):
        pytest.skip("no /proc/self/io or no /dev/shm here: both are Linux's")
    if shutil.disk_usage(SHM).free < 2 * SIZE:
        pytest.skip(f"{SHM} has less than {2 * SIZE // 2**20} MiB left")
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        yield Path(folder)


@pytest.mark.claim("D11")
def test_a_dataset_in_shared_memory_is_not_read_from_disk(tmp_path, shm, shown):
    on_disk = tmp_path / "digits.bin"
    on_disk.write_bytes(os.urandom(SIZE))
    in_memory = Path(shutil.copy(on_disk, shm))

    forget(on_disk)
    cold, warm = read_from_disk(on_disk), read_from_disk(on_disk)
    forget(in_memory)  # to no effect: it has no other place
    shared = read_from_disk(in_memory)

    if cold < SIZE / 2:
        pytest.skip("the temporary folder is not on a disk that this kernel counts")
    shown(cold / 2**20, shared / 2**20, "MiB")
    # a page of a library may be fetched meanwhile
    assert max(warm, shared) < cold / 10
