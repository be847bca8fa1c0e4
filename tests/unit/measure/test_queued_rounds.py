"""Rounds of a device that the host enqueues for: the time per step of a training loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from queueing_gpu import QueueingGpu

from pytest_gpuperf.compare_steps.measure import compare_steps
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import LEAST_ROUNDS, MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import (
    LEAST_QUEUED_STEPS,
    QUEUED_ROUND_MS,
    QUEUED_ROUNDS,
    Timing,
    time_rounds,
)
from pytest_gpuperf.model.ab import AbResult, Answer
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import LATENCY_MS, STEP_MS


def timed(
    device: QueueingGpu, subject: Subject, *, alone_ms: float, seconds: float = 60.0
) -> Timing:
    return time_rounds(device, subject, alone_ms, device.deadline(seconds))


def measured(subject: Subject, device: QueueingGpu) -> Measurement:
    return measure(device, subject, MeasurePlan(test="t", seconds=60.0)).measurement


@pytest.mark.parametrize(
    ("host", "gpu", "item", "truth"),
    [
        pytest.param(8, 20, False, 20, id="the GPU has more to do"),
        pytest.param(8, 20, True, 28, id="the same with a sync"),
        pytest.param(
            11, 20, False, 20, id="more work of the host that nothing waits for"
        ),
        pytest.param(20, 8, False, 20, id="the host has more to do"),
        pytest.param(0.2, 0.5, False, 0.5, id="a short step"),
        pytest.param(0.2, 0.5, True, 0.7, id="a short step with a sync"),
        pytest.param(40, 110, False, 110, id="a long step"),
    ],
)
def test_a_step_takes_what_it_takes_in_a_long_loop(
    host: float, gpu: float, truth: float, *, item: bool
) -> None:
    device = QueueingGpu()

    timing = timed(device, device.step(host, gpu, item=item), alone_ms=host + gpu)

    assert [r.step_ms for r in timing.rounds] == pytest.approx(
        [truth] * len(timing.rounds)
    )


def test_a_round_has_ten_steps_and_three_tenths_of_a_second() -> None:
    short, long = QueueingGpu(), QueueingGpu()

    rounds = timed(short, short.step(0.5, 0.5), alone_ms=1.0)
    few = timed(long, long.step(50, 70), alone_ms=120.0)

    assert rounds.steps == QUEUED_ROUND_MS
    assert len(rounds.rounds) == QUEUED_ROUNDS
    assert short.steps == QUEUED_ROUNDS * (rounds.steps + 1)
    # One before each round: to fill the queue takes no part of a round.
    assert short.synchronized == 4 * QUEUED_ROUNDS
    assert few.steps == LEAST_QUEUED_STEPS
    assert len(few.rounds) == LEAST_ROUNDS


def test_a_round_has_as_many_steps_as_those_it_is_compared_with() -> None:
    device = QueueingGpu()
    subject = replace(device.step(0.5, 0.5), round_steps=250)

    assert timed(device, subject, alone_ms=1.0).steps == 250
    assert timed(device, subject, alone_ms=1.1).steps == 250


@pytest.mark.parametrize(
    ("alone_ms", "steps"), [(0.00837, 36_000), (0.7, 430), (27, 12), (299, 10)]
)
def test_the_number_of_steps_of_a_round_is_a_round_one(
    alone_ms: float, steps: int
) -> None:
    device = QueueingGpu()

    timing = timed(device, device.step(0, alone_ms), alone_ms=alone_ms, seconds=600)

    assert timing.steps == steps


def test_a_step_that_became_far_slower_is_not_timed_for_minutes() -> None:
    device = QueueingGpu()
    subject = replace(device.step(50, 50), round_steps=300)

    assert timed(device, subject, alone_ms=100.0).steps == LEAST_QUEUED_STEPS


def test_a_cap_gives_shorter_rounds_before_it_gives_fewer() -> None:
    device = QueueingGpu()

    timing = timed(device, device.step(400, 600), alone_ms=1000.0, seconds=30)

    assert timing.steps == 5
    assert len(timing.rounds) == LEAST_ROUNDS
    assert timing.dirty == ()
    assert timing.rounds[0].step_ms == pytest.approx(600)


def test_single_steps_under_a_short_cap_say_that_they_hide_waits() -> None:
    device = QueueingGpu()

    found = measured(device.step(4000, 5000), device)

    assert found.round_steps == 1
    assert found.times[STEP_MS.name].q50 == pytest.approx(9000)
    assert any("a sync may cost nothing" in remark for remark in found.remarks)


def test_one_disturbed_step_alone_does_not_make_the_rounds_fast() -> None:
    device = QueueingGpu()
    subject = device.step(8, 20)
    step = subject.step

    def run() -> None:
        if device.synchronized == 1:  # the step alone before the first round
            device.host(500)
        step()

    timing = timed(device, replace(subject, step=run), alone_ms=28.0)

    assert [r.step_ms for r in timing.rounds] == pytest.approx([20.0] * QUEUED_ROUNDS)


def test_a_measurement_names_the_steps_of_its_rounds_and_the_latency() -> None:
    device = QueueingGpu()

    found = measured(device.step(8, 20), device)

    assert found.round_steps == 11
    assert found.times[STEP_MS.name].q50 == pytest.approx(20)
    assert found.times[LATENCY_MS.name].q50 == pytest.approx(28)
    assert found.remarks == ()


def test_what_outlasts_the_current_stream_is_remarked() -> None:
    device = QueueingGpu()

    found = measured(device.step(2, 20, side=30), device)

    assert found.times[STEP_MS.name].q50 == pytest.approx(30)
    (remark,) = found.remarks
    assert remark.startswith(
        "between CUDA events a step takes 20 ms and step_ms is 30 ms: other"
    )


@pytest.mark.parametrize(
    ("host", "gpu"), [(8.0, 20.0), (0.3, 0.8)], ids=["long steps", "short steps"]
)
def test_a_comparison_sees_the_price_of_a_wait(host: float, gpu: float) -> None:
    pytest.importorskip("torch")
    device = QueueingGpu()

    found = compared(device, device.step(host, gpu), device.step(host, gpu, item=True))

    assert found.answer is Answer.SLOWER
    assert found.ratio == pytest.approx((host + gpu) / gpu)
    assert found.before_ms == pytest.approx(gpu)


def compared(device: QueueingGpu, before: Subject, after: Subject) -> AbResult:
    return compare_steps(device, before, after, seconds=60, tolerance=0.01, detect=0.03)


def test_a_comparison_does_not_blame_work_that_nothing_waits_for() -> None:
    pytest.importorskip("torch")
    device = QueueingGpu()

    found = compared(device, device.step(8, 20), device.step(12, 20))

    assert found.answer is Answer.SAME
    assert found.ratio == pytest.approx(1)


def test_a_comparison_of_long_steps_makes_do_with_shorter_blocks() -> None:
    pytest.importorskip("torch")
    device = QueueingGpu()

    found = compared(device, device.step(30, 60), device.step(30, 60, item=True))

    assert found.answer is Answer.SLOWER
    assert found.steps < 4 * found.quads * LEAST_QUEUED_STEPS
    assert found.ratio == pytest.approx(1.5)


def test_a_comparison_of_single_steps_is_no_comparison() -> None:
    pytest.importorskip("torch")
    device = QueueingGpu()

    found = compared(device, device.step(500, 1000), device.step(500, 1000, item=True))

    assert found.answer is Answer.INCONCLUSIVE
    assert found.why.startswith("the time cap left room for")
