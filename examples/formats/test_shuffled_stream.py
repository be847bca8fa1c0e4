"""Shards in another order, and a buffer from which samples are drawn: shuffling that scales.

It holds as many samples for a million as for a thousand, and reads each shard from its
start to its end. Augmenting what leaves the buffer stores nothing at all.
"""

from __future__ import annotations

import random

import pytest


BUFFER = 256


class ShuffledStream:
    """The samples of shards, each drawn from a full buffer; ``most`` were held at once."""

    def __init__(self, shards, seed=0):
        self.shards = shards
        self.generator = random.Random(seed)  # noqa: S311, no secret
        self.most = 0

    def __iter__(self):
        buffer = []
        order = self.generator.sample(self.shards, len(self.shards))
        for sample in (sample for shard in order for sample in shard):
            buffer.append(sample)
            self.most = max(self.most, len(buffer))
            if len(buffer) == BUFFER:
                yield self._drawn(buffer)
        while buffer:
            yield self._drawn(buffer)

    def _drawn(self, buffer):
        place = self.generator.randrange(len(buffer))
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        return buffer.pop()


def shards_of(samples):
    return [range(first, first + 500) for first in range(0, samples, 500)]


@pytest.mark.claim("D17")
def test_a_buffer_is_as_large_for_ten_times_the_samples(shown):
    few, many = ShuffledStream(shards_of(2_000)), ShuffledStream(shards_of(20_000))

    assert sorted(few) == list(range(2_000))
    assert sorted(many) == list(range(20_000))

    shown(20_000, many.most, "held")
    assert few.most == many.most == BUFFER


def test_a_sample_moves_by_shards_and_not_by_places_alone():
    drawn = list(ShuffledStream(shards_of(20_000)))

    moved = sum(abs(place - sample) for place, sample in enumerate(drawn)) / len(drawn)

    assert moved > 20_000 / 6  # a full shuffle moves it by a third of the samples
    assert drawn != list(ShuffledStream(shards_of(20_000), seed=1))
