"""A program on the simulated GPU counts its steps and operations for whoever waits for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory import LiveMemory
from pytest_gpuperf.devices.simulated.memory_watch import EnoughSteps, watching_program
from pytest_gpuperf.devices.simulated.program_audit import ProgramAudit


HERE = str(Path(__file__).parent)


def whereabouts(live: LiveMemory, steps: int) -> list[tuple[int, ...]]:
    """Return those before a program, after three operations and after each step."""
    weight = torch.ones(1, device="cuda", requires_grad=True)
    found = [tuple(live.whereabouts)]
    for _ in range(3):
        weight.detach().neg_()
    found.append(tuple(live.whereabouts))
    optimizer = torch.optim.SGD([weight])
    with suppress(EnoughSteps):
        for _ in range(steps):
            optimizer.step()
            found.append(tuple(live.whereabouts))
    return found


def test_memory_is_some_operations_from_its_start_and_then_in_a_step() -> None:
    with simulated_gpu(HERE, values=False), watching_program(HERE, 3) as memory:
        (_, before), (_, after), *found = whereabouts(memory.live, steps=9)

    assert after - before >= 3
    assert [step for step, _ in found] == [2, 3]


def test_an_audit_is_some_operations_from_its_start_and_then_in_a_step() -> None:
    with simulated_gpu(HERE) as gpu:
        program = ProgramAudit(gpu)
        (_, before), (_, after), *found = whereabouts(program.live, steps=7)
        program.close()

    assert after - before >= 3
    assert [step for step, _ in found] == [*range(2, 9)]
