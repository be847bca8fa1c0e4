"""A GELU as five elementwise operations, and as one.

TorchScript, which once fused them, does nothing of the kind on a CPU today and is
deprecated: ``torch.compile`` writes one kernel, and ``functional.gelu`` is one.
"""

from __future__ import annotations

import pytest
import torch
from inductor import compiled, kernels_of, needs_compiler, operations_of
from torch.nn import functional as F

import pytest_gpuperf as gpuperf


def spelled_out(x):
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


def rows(device):
    return torch.randn(512, 512, device=device)


@pytest.mark.claim("C1")
def test_five_operations_are_one(gpuperf):
    x = rows(gpuperf.device)
    torch.testing.assert_close(spelled_out(x), F.gelu(x), rtol=1e-4, atol=1e-5)

    result = gpuperf.compare(lambda: spelled_out(x), lambda: F.gelu(x))

    assert (result.ops.before, result.ops.after) == (5, 1)


@pytest.mark.claim("C1")
def test_nothing_is_held_between_the_five(gpuperf):
    x = rows(gpuperf.device)

    result = gpuperf.compare(lambda: spelled_out(x), lambda: F.gelu(x))

    assert result.memory.difference == -2 * x.nbytes


def test_one_operation_is_quicker(gpuperf):
    x = rows(gpuperf.device)

    result = gpuperf.compare(lambda: spelled_out(x), lambda: F.gelu(x), speedup=2)

    assert result.time.verdict != "slower"


@needs_compiler
@pytest.mark.claim("C1")
def test_a_compiler_writes_one_kernel_for_all(shown):
    x = rows("cpu")
    before, after = operations_of(spelled_out, x), kernels_of(spelled_out, x)

    shown(before, after, "kernels")
    assert (before, after) == (5, 1)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_script_runs_all_five_today():
    scripted, x = torch.jit.script(spelled_out), rows("cpu")
    for _ in range(3):
        scripted(x)  # it would fuse what it has seen often enough

    with torch.profiler.profile() as profile:
        scripted(x)

    counts = {event.key: event.count for event in profile.key_averages()}
    assert {name: counts.get(f"aten::{name}") for name in ("mul", "add", "erf")} == {
        "mul": 2,
        "add": 1,
        "erf": 1,
    }


@needs_compiler
@pytest.mark.slow
@pytest.mark.claim("C1", gate="time")
@gpuperf.tolerance(ms="1%", detect="50%")
def test_a_compiled_gelu_is_quicker(gpuperf, clock):
    x, fused = rows(clock), compiled(spelled_out)

    result = gpuperf.compare(lambda: spelled_out(x), lambda: fused(x), speedup=1.5)

    assert result.time.verdict != "slower"
