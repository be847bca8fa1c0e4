"""Shards in WebDataset's format: plain tar files, whose members share a sample's name."""

from __future__ import annotations

import io
import tarfile


def write_shards(folder, samples, count=8):
    """Write *samples* to *count* shards of equal size and return their paths."""
    samples = list(samples)
    size = len(samples) // count
    paths = [folder / f"shard-{number:03d}.tar" for number in range(count)]
    for number, path in enumerate(paths):
        with tarfile.open(path, "w") as shard:
            for index in range(number * size, (number + 1) * size):
                image, label = samples[index]
                _add(shard, f"{index:06d}.bin", image)
                _add(shard, f"{index:06d}.cls", str(label).encode())
    return paths


def _add(shard, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))


def read_shard(file):
    """Yield the samples of one open shard; it is read once, from its start to its end."""
    with tarfile.open(fileobj=file, mode="r|") as shard:
        for member in shard:
            content = shard.extractfile(member).read()
            if member.name.endswith(".bin"):
                image = content
            else:
                yield image, int(content)


def read_shards(paths):
    """Yield the samples of shards on disk, one shard after the other."""
    for path in paths:
        with path.open("rb") as file:
            yield from read_shard(file)


def index_of(path):
    """Return where each image of a shard lies: its first byte and its size, by name."""
    with tarfile.open(path) as shard:
        return {
            member.name: (member.offset_data, member.size)
            for member in shard
            if member.name.endswith(".bin")
        }
