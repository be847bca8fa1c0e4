"""A few large shards instead of many small files: two opens a sample become one a shard.

The shards have the format of WebDataset. Its package reads them as well; all that it takes
is ``tarfile``.
"""

from __future__ import annotations

import pytest
from data.digits import digits
from data.opened import opened_below
from data.shards import read_shards, write_shards
from data.small_files import read_small_files, write_small_files


SAMPLES = 400


@pytest.mark.claim("D13")
def test_eight_shards_are_opened_eight_times(tmp_path, shown):
    small_files = write_small_files(tmp_path, digits(SAMPLES))
    shards = write_shards(tmp_path, digits(SAMPLES))

    with opened_below(tmp_path) as many:
        one_by_one = list(read_small_files(small_files))
    with opened_below(tmp_path) as few:
        streamed = list(read_shards(shards))

    shown(len(many), len(few), "opens")
    assert streamed == one_by_one == list(digits(SAMPLES))
    assert (len(many), len(few)) == (2 * SAMPLES, 8)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it closes no shard
def test_the_package_reads_the_same_shards(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    shards = write_shards(tmp_path, digits(SAMPLES))

    with opened_below(tmp_path) as few:
        names = [str(path) for path in shards]
        stream = webdataset.WebDataset(names, shardshuffle=False).to_tuple("bin", "cls")
        samples = [(image, int(label)) for image, label in stream]

    assert samples == list(digits(SAMPLES))
    assert len(few) == 8
