"""Graph breaks and recompilations of a step, end to end on the cpu device."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

STEPS = """
import torch


def reads(x):
    total = (x * 2).sum()
    print(end=f"{total.item()}"[:0])
    return torch.relu(x) + total


def whole(x):
    return torch.relu(x * 2)


def compiled_for_two_sizes(function, device):
    compiled = torch.compile(function, backend="eager", dynamic=False)
    compiled(torch.ones(3, device=device))
    x = torch.ones(4, device=device)
    return lambda: compiled(x)


@gpuperf.budget(graph_breaks=0)
def test_broken(gpuperf):
    gpuperf(compiled_for_two_sizes(reads, gpuperf.device))


@gpuperf.budget(graph_breaks=1, recompiles=3)
def test_known(gpuperf):
    gpuperf(compiled_for_two_sizes(reads, gpuperf.device))


@gpuperf.budget(graph_breaks=0, recompiles=0)
def test_again(gpuperf):
    gpuperf(compiled_for_two_sizes(whole, gpuperf.device))


@gpuperf.budget(graph_breaks=0, recompiles=0)
def test_eager(gpuperf):
    x = torch.ones(4, device=gpuperf.device)
    gpuperf(lambda: whole(x))
"""


def test_a_break_fails_with_its_line_and_a_recompilation_with_its_reason(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT graph_breaks: 1, limit 0",
            "  --> test_it.py:* in reads",
            "*graph break: *",
            "OVER LIMIT recompiles: 1, limit 0",
            "  --> test_it.py:* in whole",
            "*compiled again, once: tensor 'x' size mismatch at index 0. expected*",
        ]
    )
    result.stdout.no_fnmatch_line("*torch.__trace*")


def test_on_the_simulated_device_compiled_code_is_not_checked_and_eager_code_is(
    project: ScriptedProject,
) -> None:
    project.file(STEPS)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", "--gpuperf-device=simulated", "-v"
    )

    result.assert_outcomes(passed=4)
    reason = "the simulated GPU runs compiled code as eager code"
    assert f"not checked: graph_breaks of 3 tests, {reason}" in " ".join(
        line.strip() for line in result.outlines
    )


FUSED = """
import torch


def compiled_step(gpuperf, backend):
    model = torch.nn.Linear(2048, 2048).to(gpuperf.device)
    compiled = torch.compile(model, backend=backend)
    rows = torch.ones(64, 2048, device=gpuperf.device)
    return lambda: compiled(rows).sum().backward()


@gpuperf.budget(mem_mb=20)
def test_too_large(gpuperf):
    gpuperf(compiled_step(gpuperf, "aot_eager"))


@gpuperf.budget(mem_mb=20, reserved_mb=20)
def test_too_large_if_it_were_eager(gpuperf):
    gpuperf(compiled_step(gpuperf, "inductor"))


@gpuperf.budget(mem_mb=500)
def test_small_enough_also_as_eager_code(gpuperf):
    gpuperf(compiled_step(gpuperf, "inductor"))
"""


def test_the_peak_of_eager_code_fails_no_step_that_is_fused(
    project: ScriptedProject,
) -> None:
    project.file(FUSED)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", "--gpuperf-device=simulated", "-v"
    )

    result.assert_outcomes(passed=2, failed=1)
    shown = " ".join(line.strip() for line in result.outlines)
    assert "OVER LIMIT mem_mb" in shown
    assert "torch.compile: the peak is that of eager code" in shown
    assert "what torch reserves for compiled code was up to 20 %" in shown
