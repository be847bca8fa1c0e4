"""A few samples of a large shard: with an index they are read alone, without it all is.

A tar file has no index; one pass over it makes one, which is kept beside the shard.
"""

from __future__ import annotations

import io

import pytest
from data.digits import IMAGE_BYTES, digits
from data.shards import index_of, read_shard, write_shards


SAMPLES = 400
WANTED = range(7, SAMPLES, 40)


class Counted(io.FileIO):
    """A file that counts the bytes that were read of it."""

    count = 0

    def read(self, size=-1):
        content = super().read(size)
        self.count += len(content)
        return content


@pytest.mark.claim("D16")
def test_an_index_reads_what_was_asked_for_and_no_more(tmp_path, shown):
    (path,) = write_shards(tmp_path, digits(SAMPLES), count=1)
    index = index_of(path)

    with Counted(path) as scanned:
        everything = [image for image, _ in read_shard(scanned)]
    with Counted(path) as jumped:
        few = []
        for number in WANTED:
            first_byte, size = index[f"{number:06d}.bin"]
            jumped.seek(first_byte)
            few.append(jumped.read(size))

    mib = [round(file.count / 2**20, 3) for file in (scanned, jumped)]
    shown(*mib, "MiB")
    assert few == [everything[number] for number in WANTED]
    assert scanned.count == path.stat().st_size
    assert jumped.count == len(WANTED) * IMAGE_BYTES
