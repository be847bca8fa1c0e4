"""All samples as records of one sequential file: one open for the whole dataset.

The framing is TFRecord's, written by hand in ``data/records.py``; TensorFlow is not needed.
"""

from __future__ import annotations

import pytest
from data.digits import digits
from data.opened import opened_below
from data.records import crc32c, read_records, write_records
from data.small_files import read_small_files, write_small_files


SAMPLES = 200


@pytest.mark.claim("D14")
def test_a_file_of_records_is_opened_once(tmp_path, shown):
    small_files = write_small_files(tmp_path, digits(SAMPLES))
    packed = tmp_path / "digits.tfrecord"
    write_records(packed, (bytes([label]) + image for image, label in digits(SAMPLES)))

    with opened_below(tmp_path) as many:
        one_by_one = list(read_small_files(small_files))
    with opened_below(tmp_path) as single:
        records = [(record[1:], record[0]) for record in read_records(packed)]

    shown(len(many), len(single), "opens")
    assert records == one_by_one
    assert (len(many), len(single)) == (2 * SAMPLES, 1)


def test_a_record_that_was_damaged_is_noticed(tmp_path):
    path = tmp_path / "three.tfrecord"
    write_records(path, [b"first", b"second", b"third"])
    path.write_bytes(path.read_bytes().replace(b"second", b"secund"))

    found = read_records(path)

    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    assert next(found) == b"first"
    with pytest.raises(
        ValueError, match=r"^three.tfrecord: a record has another check"
    ):
        next(found)
