"""A small GPT: 7.68 -> 2.28 -> 1.87 -> 1.81 -> 1.09 -> 0.73 -> 0.48 s, rung by rung.

A CPU shows launches, waits, collectives and, where the times are those of its own work,
speed; the last test climbs the ladder on a GPU.
"""

from __future__ import annotations

import os
import shutil
import time

import pytest
import torch
from claims import read_claims
from models.gpt_mini import LADDER, MINI, TINY, WIDE, Characters, Epoch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Subset

import pytest_gpuperf as gpuperf


RUNGS = read_claims().speed
BATCH, WORKERS, OVERLAP, COMPILE, MIXED, TWO = range(1, 7)

timed = gpuperf.tolerance(ms="1%", detect="50%")


def climbs(number, gate):
    """Mark with what was published for a rung and the one above, and what shows it."""
    above, rung = RUNGS[number - 1 : number + 1]
    numbers = {"before": above.published_s, "after": rung.published_s}
    return pytest.mark.claim("C2", gate=gate, **numbers)


@climbs(BATCH, "operations")
def test_a_larger_batch_launches_less_for_as_many_samples(gpuperf, gpu):
    result = gpuperf.compare(
        Epoch(TINY, gpu, **LADDER[0]), Epoch(TINY, gpu, **LADDER[BATCH])
    )

    assert result.ops.before == pytest.approx(RUNGS[BATCH].before, rel=0.1)
    assert result.ops.after == pytest.approx(RUNGS[BATCH].after, rel=0.1)


@climbs(BATCH, "time")
@timed
def test_a_larger_batch_takes_less_time_for_as_many_samples(gpuperf, clock):
    gpuperf.compare(
        Epoch(TINY, clock, **LADDER[0]),
        Epoch(TINY, clock, **LADDER[BATCH]),
        speedup=RUNGS[BATCH].least,
    )


class Disk(Characters):
    """Samples, and which process has read each of them."""

    def __init__(self):
        super().__init__(TINY, 64)
        self.readers = torch.zeros(64, dtype=torch.long).share_memory_()

    def __getitem__(self, index):
        self.readers[index] = os.getpid()
        return super().__getitem__(index)


def disk_and_loader(rung):
    disk = Disk()
    return disk, Epoch(TINY, "cpu", dataset=disk, **LADDER[rung] | {"batch": 4}).loader


def read_ahead(rung, *, at_least):
    """Return how many samples are loaded while the host asks for none, after a batch."""
    disk, loader = disk_and_loader(rung)
    batches = iter(loader)
    next(batches)
    until = time.monotonic() + 30
    while disk.readers.count_nonzero() < 4 + at_least and time.monotonic() < until:
        time.sleep(0.01)
    return int(disk.readers.count_nonzero()) - 4


@climbs(WORKERS, "loader wait")
def test_workers_load_while_the_device_computes(shown):
    rung = RUNGS[WORKERS]

    alone = read_ahead(BATCH, at_least=rung.before)
    helped = read_ahead(WORKERS, at_least=rung.after)

    shown(alone, helped, rung.what)
    assert (alone, helped) == (rung.before, rung.after)


def test_workers_of_an_epoch_load_the_next_one():
    disk, loader = disk_and_loader(WORKERS)

    first, second = (
        {reader for _ in loader for reader in disk.readers.tolist()} - {0}
        for _ in range(2)
    )

    assert first == second
    assert len(first) == LADDER[WORKERS]["workers"]


@climbs(OVERLAP, "syncs")
@gpuperf.budget(syncs=0, pageable_copies=0)
def test_copies_that_overlap_keep_nobody_waiting(gpuperf, gpu):
    result = gpuperf.compare(Epoch(TINY, gpu), Epoch(TINY, gpu, overlapped=True))

    rung = RUNGS[OVERLAP]
    assert (result.syncs.before, result.syncs.after) == (rung.before, rung.after)


@climbs(COMPILE, "time")
@timed
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own parts
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles for a CPU")
def test_a_compiled_model_is_faster(gpuperf, clock):
    gpuperf.compare(
        Epoch(TINY, clock),
        Epoch(TINY, clock, compiled=True),
        speedup=RUNGS[COMPILE].least,
    )


@climbs(MIXED, "time")
@timed
@pytest.mark.usefixtures("bfloat16")
def test_half_as_many_bits_are_multiplied_faster(gpuperf, clock):
    if clock != "cpu":
        pytest.skip(
            "on a GPU launching is most of this: test_gpt_mini_on_a_gpu shows it"
        )
    gpuperf.compare(
        Epoch(WIDE, clock, samples=WIDE.batch),
        Epoch(WIDE, clock, samples=WIDE.batch, mixed=True),
        speedup=RUNGS[MIXED].least,
    )


# gradients are reduced in one bucket; masks, which are buffers, are sent in another
@climbs(TWO, "collectives")
@gpuperf.ranks(2)
@gpuperf.budget(collectives=RUNGS[TWO].after)
def test_two_ranks_share_a_batch_and_agree_on_gradients(gpuperf):
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    alone = Epoch(TINY, gpuperf.device, samples=64, batch=64)
    share = Subset(alone.loader.dataset, range(rank, 64, ranks))
    shared = Epoch(TINY, gpuperf.device, dataset=share, batch=64 // ranks)
    shared.run = DistributedDataParallel(shared.model)

    alone()
    shared()
    for one, all_ranks in zip(
        alone.model.parameters(), shared.model.parameters(), strict=True
    ):
        torch.testing.assert_close(all_ranks.grad, one.grad, rtol=1e-4, atol=1e-5)

    gpuperf(shared)
    if gpuperf.measurement:
        assert gpuperf.measurement.exact["collectives"] == RUNGS[TWO].after


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, marks=climbs(n, "time"), id=RUNGS[n].name)
        for n in (BATCH, WORKERS, OVERLAP, COMPILE, MIXED)
    ],
)
def test_gpt_mini_on_a_gpu(gpuperf, real_gpu, number):
    gpuperf.compare(
        Epoch(MINI, real_gpu, samples=1024, **LADDER[number - 1]),
        Epoch(MINI, real_gpu, samples=1024, **LADDER[number]),
        speedup=RUNGS[number].least_on_a_gpu,
    )
