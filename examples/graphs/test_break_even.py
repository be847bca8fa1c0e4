"""What compiling costs, against what it saves: a short program is over before it pays."""

from __future__ import annotations

import math
from time import perf_counter, process_time

import pytest
import torch
from inductor import compiled, needs_compiler
from models.gelu import spelled_out


def seconds_of(step, *, clock=process_time):
    started = clock()
    step()
    return clock() - started


def fastest_of(step):
    return min(seconds_of(step) for _ in range(20))


@pytest.mark.claim("C14")
def test_a_step_that_runs_once_is_slower_compiled(shown):
    torch._dynamo.reset()  # noqa: SLF001, there is no public one
    x = torch.randn(8, 8)
    traced = torch.compile(spelled_out, backend="eager")  # writes no kernel at all
    spelled_out(x)

    eager = seconds_of(lambda: spelled_out(x))
    first = seconds_of(lambda: traced(x))

    shown(round(1000 * eager, 2), round(1000 * first), "ms")
    assert first > 10 * eager


@needs_compiler
@pytest.mark.slow
def test_a_kernel_pays_for_itself_after_many_steps(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()  # noqa: SLF001
    x, fused = torch.randn(1000, 1000), compiled(spelled_out)

    cold = seconds_of(lambda: fused(x), clock=perf_counter)
    eager, warm = fastest_of(lambda: spelled_out(x)), fastest_of(lambda: fused(x))
    steps = cold / (eager - warm) if eager > warm else math.inf

    shown(1, steps, "steps")
    assert steps > 100
