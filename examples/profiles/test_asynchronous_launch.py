"""The host hands work over to the GPU and goes on before it is done.

A pool of one thread is such a device: ``submit`` returns at once, ``result`` waits.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest
import torch

import pytest_gpuperf as gpuperf


@pytest.mark.claim("Y9")
def test_handing_work_over_takes_less_time_than_the_work(shown):
    with ThreadPoolExecutor(max_workers=1) as stream:
        start = time.perf_counter()
        kernels = [stream.submit(time.sleep, 0.02) for _ in range(20)]
        handed_over = time.perf_counter() - start
        kernels[-1].result()
        done = time.perf_counter() - start

    shown(round(1e3 * done), round(1e3 * handed_over, 1), "ms")
    assert handed_over < done / 2


@pytest.mark.claim("Y9")
@gpuperf.budget(syncs=0)
def test_a_step_is_enqueued_before_the_gpu_is_through(gpuperf, real_gpu, shown):
    matrix = torch.rand(4096, 4096, device=real_gpu)

    taken = []

    def step():
        start = time.perf_counter()
        product = [torch.mm(matrix, matrix) for _ in range(8)][-1]
        taken.append(1e3 * (time.perf_counter() - start))
        return product

    gpuperf(step)

    if gpuperf.measurement is None:
        pytest.skip("nothing is timed without --gpuperf")
    done, handed_over = gpuperf.measurement.times["latency_ms"].q50, median(taken)
    shown(round(done, 2), round(handed_over, 2), "ms")
    assert handed_over < done / 2
