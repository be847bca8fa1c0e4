"""Shards in another order, and a buffer from which samples are drawn: shuffling that scales.

It holds as many samples for a million as for a thousand, and reads each shard from its
start to its end. Augmenting what leaves the buffer stores nothing at all.
"""

from __future__ import annotations

import random

import pytest
from data.digits import digits
from data.peak import peak_mib
from data.shards import read_shards, write_shards


BUFFER, SHARD = 128, 50
FEW, MANY = 300, 3_000


class ShuffledStream:
    """The samples of shards, each drawn from a full buffer and augmented then."""

    def __init__(self, shards, augment, seed=0):
        self.shards, self.augment = shards, augment
        self.generator = random.Random(seed)  # noqa: S311, no secret

    def __iter__(self):
        buffer = []
        order = self.generator.sample(self.shards, len(self.shards))
        for sample in read_shards(order):
            buffer.append(sample)
            if len(buffer) == BUFFER:
                yield self._drawn(buffer)
        while buffer:
            yield self._drawn(buffer)

    def _drawn(self, buffer):
        place = self.generator.randrange(len(buffer))
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        image, label = buffer.pop()
        return self.augment(image, self.generator), label


def mirrored(image):
    return b"".join(image[row : row + 28][::-1] for row in range(0, 28 * 28, 28))


def mirrored_or_not(image, generator):
    return generator.choice((image, mirrored(image)))


def unchanged(image, _):
    return image


@pytest.fixture
def shards_of(tmp_path):
    """Return a function that writes so many samples to shards of one size."""

    def written(samples):
        (tmp_path / str(samples)).mkdir()
        return write_shards(tmp_path / str(samples), digits(samples), samples // SHARD)

    return written


def read_all(samples):
    for _ in samples:
        pass


@pytest.mark.claim("D17")
def test_ten_times_the_samples_pass_through_the_same_memory(shards_of, shown):
    few, many = shards_of(FEW), shards_of(MANY)

    whole = peak_mib(lambda: list(read_shards(many)))
    streams = [ShuffledStream(shards, mirrored_or_not) for shards in (few, many)]
    less, more = (peak_mib(lambda s=stream: read_all(s)) for stream in streams)

    shown(round(whole, 2), round(more, 2), "MiB")
    assert more < 1.2 * less
    assert more < whole / 5


@pytest.mark.claim("D17")
def test_each_epoch_mirrors_other_images_of_all(shards_of):
    stream = ShuffledStream(shards_of(FEW), mirrored_or_not)
    originals = dict(digits(FEW))

    epochs = [dict(stream), dict(stream)]

    for epoch in epochs:
        turned = {image for image in epoch if image not in originals}
        upright = {mirrored(i) if i in turned else i: epoch[i] for i in epoch}
        assert upright == originals
        assert FEW / 3 < len(turned) < FEW / 3 * 2
    assert epochs[0].keys() != epochs[1].keys()


@pytest.mark.claim("D17")
def test_a_sample_moves_by_shards_and_not_by_places_alone(shards_of):
    places = {image: place for place, (image, _) in enumerate(digits(MANY))}
    shards = shards_of(MANY)

    drawn = [places[image] for image, _ in ShuffledStream(shards, unchanged)]

    moved = sum(abs(place - sample) for place, sample in enumerate(drawn)) / MANY
    assert moved > MANY / 6  # a full shuffle moves it by a third of the samples
    assert sorted(drawn) == list(range(MANY))
