"""Syncs that only some steps have, on the simulated GPU: found, counted, or set apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.allow_sync import allow_sync
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.measure.emulated import audit
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import Finding, FindingKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import SYNCS


Step = Callable[[], object]


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    device = SimulatedDevice(str(Path(__file__).parent))
    device.enter()
    yield device
    device.leave()


def reading(loss: torch.Tensor, when: Callable[[int], bool]) -> tuple[Step, list[int]]:
    """Return a step that reads *loss* in those of a number, from 1 on, and the numbers."""
    numbers: list[int] = []

    def step() -> None:
        numbers.append(len(numbers) + 1)
        total = loss.sum()
        if when(numbers[-1]):
            total.item()

    return step, numbers


def looked(device: SimulatedDevice, step: Step) -> Measurement:
    plan = MeasurePlan(test="t", seconds=600, asked={SYNCS.name})
    return audit(device, Subject(step=step), plan).measurement


def waits(measurement: Measurement) -> list[Finding]:
    return [f for f in measurement.findings if f.kind is FindingKind.SYNC]


@pytest.mark.parametrize("every", [4, 7, 50])
def test_a_wait_in_every_nth_step_is_found_and_says_its_distance(
    device: SimulatedDevice, every: int
) -> None:
    step, _ = reading(torch.ones(3, device="cuda"), lambda n: n % every == 0)

    measurement = looked(device, step)

    (wait,) = waits(measurement)
    most = max(measurement.exact["syncs"], measurement.exact.get("occasional_syncs", 0))
    assert most == 1
    assert wait.how_often == f"1 every {every} steps"
    assert wait.location is not None
    assert wait.location.function == "step"


def test_a_wait_in_every_50th_step_counts_in_no_step_that_is_compared_with_a_baseline(
    device: SimulatedDevice,
) -> None:
    step, _ = reading(torch.ones(3, device="cuda"), lambda n: n % 50 == 0)

    exact = looked(device, step).exact

    assert exact["syncs"] == 0
    assert exact["occasional_syncs"] == 1


@pytest.mark.parametrize("every", [2, 4, 7, 50])
def test_a_baseline_keeps_which_further_steps_did_more_than_each(
    device: SimulatedDevice, every: int
) -> None:
    step, _ = reading(torch.ones(3, device="cuda"), lambda n: n % every == 0)

    further = looked(device, step).further

    assert further is not None
    assert further.usual == {}
    seen = range(further.first, further.last + 1)
    assert further.counts == {
        "syncs": tuple((number, 1) for number in seen if number % every == 0)
    }


def test_what_each_step_does_is_usual(device: SimulatedDevice) -> None:
    step, _ = reading(torch.ones(3, device="cuda"), lambda _: True)

    further = looked(device, step).further

    assert further is not None
    assert (further.usual, further.counts) == ({"syncs": 1}, {})


def test_a_copy_in_every_50th_step_is_found_as_a_wait_is(
    device: SimulatedDevice,
) -> None:
    batch, numbers = torch.ones(3), []

    def step() -> None:
        numbers.append(torch.ones(3, device="cuda"))
        if len(numbers) % 50 == 0:
            batch.to("cuda")

    exact = looked(device, step).exact

    assert (exact["pageable_copies"], exact["occasional_copies"]) == (0, 1)


def test_a_wait_in_the_tenth_step_alone_is_a_preparation(
    device: SimulatedDevice,
) -> None:
    step, _ = reading(torch.ones(3, device="cuda"), lambda n: n == 10)

    measurement = looked(device, step)

    (wait,) = waits(measurement)
    assert wait.metrics == ()
    assert wait.reason.endswith("once and not again, so it does not count")
    assert "occasional_syncs" not in measurement.exact
    assert not measurement.missed


def test_a_wait_of_every_step_is_in_no_share_of_them(device: SimulatedDevice) -> None:
    step, _ = reading(torch.ones(3, device="cuda"), lambda _: True)

    measurement = looked(device, step)

    assert [f.how_often for f in waits(measurement)] == ["1 per step"]
    assert "occasional_syncs" not in measurement.exact


def test_a_step_with_more_waits_than_the_first_ones_counts_them_all(
    device: SimulatedDevice,
) -> None:
    loss = torch.ones(3, device="cuda")
    inner, numbers = reading(loss, lambda n: n % 9 == 0)

    def step() -> None:
        loss.sum().item()
        inner()

    measurement = looked(device, step)

    assert measurement.exact["syncs"] == 1
    assert measurement.exact["occasional_syncs"] == 2
    assert numbers


def test_an_allowed_wait_in_some_steps_counts_in_nothing(
    device: SimulatedDevice,
) -> None:
    loss, numbers = torch.ones(3, device="cuda"), []

    def step() -> None:
        numbers.append(loss + 1)
        if len(numbers) % 20 == 0:
            with allow_sync(reason="the loss is logged"):
                loss.sum().item()

    assert "occasional_syncs" not in looked(device, step).exact


def test_steps_that_end_early_are_no_failure(
    device: SimulatedDevice,
) -> None:
    batches = iter([torch.ones(3, device="cuda")] * 8)

    def step() -> object:
        return next(batches) + 1

    measurement = looked(device, step)

    assert "as the next one raised StopIteration" in measurement.remarks[-1]


def test_a_scheduler_that_reads_its_loss_every_16th_step_is_found(
    device: SimulatedDevice,
) -> None:
    model = torch.nn.Linear(8, 8, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    batch = torch.ones(4, 8, device="cuda")
    numbers: list[int] = []

    def step() -> None:
        numbers.append(1)
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        if len(numbers) % 16 == 0:
            scheduler.step(loss.detach())

    measurement = looked(device, step)

    assert measurement.exact["occasional_syncs"] >= 1
    assert {f.how_often for f in waits(measurement)} == {"1 every 16 steps"}


def test_two_waits_that_nothing_repeats_have_no_distance(
    device: SimulatedDevice,
) -> None:
    step, _ = reading(torch.ones(3, device="cuda"), lambda n: n in {20, 31})

    (wait,) = waits(looked(device, step))

    assert wait.how_often == "1 in 2 of 103 steps"
