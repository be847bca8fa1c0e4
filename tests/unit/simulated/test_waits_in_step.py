"""Where in its step a line waits: operations before it, and those that start late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.program_audit import ProgramAudit
from pytest_gpuperf.model.finding import MOST_WAITS


Where = tuple[Sequence[int], int, bool]


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(root=str(Path(__file__).parent)) as entered:
        yield entered


def where(audit: StepAudit) -> list[Where]:
    return [(f.waits_after, f.operations, f.is_idle) for f in audit.findings]


def of_step(gpu: SimulatedGpu, step: Callable[[], object]) -> list[Where]:
    gpu.begin_step()
    step()
    return where(gpu.end_step())


def test_a_wait_knows_the_operations_before_it_and_all_of_the_step(
    gpu: SimulatedGpu,
) -> None:
    x = torch.ones(3, device="cuda")

    def step() -> None:
        y = (x + 1) * 2
        y.sum().item()
        y.exp()

    assert of_step(gpu, step) == [((3,), 4, False)]


def test_the_first_waits_of_a_line_are_kept(gpu: SimulatedGpu) -> None:
    x = torch.ones(3, device="cuda")

    def step() -> None:
        for _ in range(MOST_WAITS + 4):
            x.sum().item()

    ((places, operations, _),) = of_step(gpu, step)

    assert places == tuple(range(1, MOST_WAITS + 1))
    assert operations == MOST_WAITS + 4


def test_a_wait_just_after_another_one_finds_the_gpu_idle(gpu: SimulatedGpu) -> None:
    x = torch.ones(3, device="cuda")

    def step() -> None:
        x.sum().item()
        x.tolist()
        x.sum()

    assert [idle for _, _, idle in of_step(gpu, step)] == [False, True]


def test_a_copy_that_waits_is_over_before_the_next_one(gpu: SimulatedGpu) -> None:
    x, y = torch.ones(3), torch.ones(3)

    def step() -> None:
        (x.to("cuda") + 1).sum()
        y.to("cuda")
        x.to("cuda")

    assert [idle for _, _, idle in of_step(gpu, step)] == [False, False, True]


def test_in_a_program_a_place_is_that_of_a_whole_step(gpu: SimulatedGpu) -> None:
    parameter = torch.ones(3, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    gpu.begin_step()
    audit = ProgramAudit(gpu)
    for _ in range(4):
        loss = (parameter * 2).sum()
        loss.backward()
        optimizer.step()
        loss.item()
    found = audit.audit()
    audit.close()

    ((places, operations, is_idle),) = where(found)

    assert places == (0,)
    assert operations > 4
    assert not is_idle


def test_what_a_program_does_before_its_steps_has_no_place(gpu: SimulatedGpu) -> None:
    parameter = torch.ones(3, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    gpu.begin_step()
    audit = ProgramAudit(gpu)
    parameter.sum().item()
    for _ in range(3):
        (parameter * 2).sum().backward()
        optimizer.step()
    found = audit.audit()
    audit.close()

    assert where(found) == [((), 0, False)]
