"""A GPU that is as busy as before may take a fifth of the time: 96.1 % and 96.36 %.

Busy says whether a kernel runs, not what it achieves. Gate the time; look at the share to
learn whether the host is in the way.
"""

from __future__ import annotations

import pytest
import torch
from models.simulated import busy_percent
from models.simulated import step_ms

import pytest_gpuperf as gpuperf


SLOW = [["work", 2000], ["launch", 104, 500], ["item"]]
FAST = [["work", 330], ["launch", 104, 100], ["item"]]


@pytest.mark.claim("T8")
def test_a_step_takes_a_fifth_of_the_time_on_a_gpu_as_busy_as_before(shown):
    before, after = busy_percent(*SLOW), busy_percent(*FAST)

    shown(round(before, 2), round(after, 2), "% busy")
    assert after == pytest.approx(before, abs=1)
    assert step_ms(*SLOW) > 4.9 * step_ms(*FAST)


@gpuperf.budget(busy_pct=85, syncs=0)
def test_a_queue_that_is_never_empty_keeps_a_gpu_busy(gpuperf, real_gpu):
    matrix = torch.rand(4096, 4096, device=real_gpu)

    gpuperf(lambda: [torch.mm(matrix, matrix) for _ in range(8)][-1])
