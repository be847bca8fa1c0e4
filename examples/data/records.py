"""Records in one file, framed as TFRecord frames them.

A record is its length (8 bytes), a checksum of the length (4), the content, and a checksum
of that (4), all little-endian. The checksums are CRC-32C, rotated by 15 bits and with a
constant added, as tensorflow.org/tutorials/load_data/tfrecord says.
"""

from __future__ import annotations

import struct


POLYNOMIAL = 0x82F63B78  # CRC-32C's, reflected (RFC 3720)
MASK = 0xA282EAD8


def _shifted(value):
    for _ in range(8):
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    return value


TABLE = tuple(_shifted(value) for value in range(256))


def crc32c(content):
    """Return the checksum of *content*, before it is masked."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(content):
    """Return the checksum as the file holds it."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF


def write_records(path, contents):
    """Write *contents*, each as one record."""
    with path.open("wb") as file:
        for content in contents:
            length = struct.pack("<Q", len(content))
            file.write(length + struct.pack("<I", masked(length)))
            file.write(content + struct.pack("<I", masked(content)))


def read_records(path):
    """Yield the contents; raise ``ValueError`` where one is not what was written."""
    with path.open("rb") as file:
        while head := file.read(12):
            size, crc = struct.unpack("<QI", head)
            _check(head[:8], crc, path)
            content = file.read(size)
            _check(content, *struct.unpack("<I", file.read(4)), path)
            yield content


def _check(content, crc, path):
    if masked(content) != crc:
        msg = f"{path.name}: a record has another checksum than its content"
        raise ValueError(msg)
