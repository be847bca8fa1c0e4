"""A small GPT: 7.68 -> 2.28 -> 1.87 -> 1.81 -> 1.09 -> 0.73 -> 0.48 s, rung by rung.

A CPU shows launches, waits, collectives and, where the times are those of its own work,
speed; the last test climbs the ladder on a GPU.
"""

from __future__ import annotations

import shutil
import time

import pytest
import torch
from claims import read_claims
from models.gpt_mini import LADDER
from models.gpt_mini import MINI
from models.gpt_mini import TINY
from models.gpt_mini import WIDE
from models.gpt_mini import Epoch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data import Dataset
from torch.utils.data import get_worker_info

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


class Disk(Dataset):
    """Samples, and how many of them each process has read."""

    def __init__(self):
        self.read = torch.zeros(2, dtype=torch.long).share_memory_()

    def __len__(self):
        return 64

    def __getitem__(self, index):
        worker = get_worker_info()
        self.read[worker.id if worker else 0] += 1
        return index


def read_ahead(workers, *, at_least):
    """Return how many samples are loaded while the host asks for none, after a batch."""
    disk = Disk()
    batches = iter(DataLoader(disk, batch_size=4, num_workers=workers))
    next(batches)
    until = time.monotonic() + 30
    while disk.read.sum() < 4 + at_least and time.monotonic() < until:
        time.sleep(0.01)
    return int(disk.read.sum()) - 4


@climbs(WORKERS, "loader wait")
def test_workers_load_while_the_device_computes(shown):
    rung = RUNGS[WORKERS]

    alone, helped = (
        read_ahead(0, at_least=rung.before),
        read_ahead(2, at_least=rung.after),
    )

    shown(alone, helped, rung.what)
    assert (alone, helped) == (rung.before, rung.after)


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
    epoch = Epoch(TINY, gpuperf.device, samples=32, batch=32)
    epoch.run = DistributedDataParallel(epoch.model)
    part = epoch.loader.dataset  # no rank has what another one has
    part.text = part.text.roll(distributed.get_rank())

    gpuperf(epoch)

    for parameter in epoch.model.parameters():
        mean = parameter.grad.clone()
        distributed.all_reduce(mean)
        mean /= distributed.get_world_size()
        torch.testing.assert_close(parameter.grad, mean)


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
