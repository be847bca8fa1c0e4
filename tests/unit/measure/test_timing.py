"""Timed rounds: N steps between two synchronisations, none inside."""

from __future__ import annotations

import gc

import pytest
from scripted_steps import Clockwork, deadline, subject

from pytest_gpuperf.measure.plan import LEAST_ROUNDS
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import (
    MOST_REPEATS,
    ROUNDS,
    drift_of,
    time_round,
    time_rounds,
)


def test_a_round_lasts_ten_milliseconds_and_synchronises_only_around() -> None:
    device = Clockwork(lambda _: 2.0)

    timing = time_rounds(device, subject(device), 2.0, deadline(device))

    assert [r.step_ms for r in timing.rounds] == [2.0] * ROUNDS
    assert device.steps == 5 * ROUNDS
    assert device.synchronized == 2 * ROUNDS
    assert timing.dirty == ()


def test_a_long_step_gets_fewer_rounds_of_one_step() -> None:
    device = Clockwork(lambda _: 150.0)

    timing = time_rounds(device, subject(device), 150.0, deadline(device))

    assert len(timing.rounds) == LEAST_ROUNDS == device.steps


def test_setup_gives_fresh_arguments_outside_the_timed_loop() -> None:
    device = Clockwork(lambda _: 1.0)
    seen: list[object] = []
    made = iter(range(1000))

    def step(argument: object) -> None:
        seen.append(argument)
        device.step()

    def setup() -> int:
        device._clock_ns += 10**9
        return next(made)

    measured = time_round(device, Subject(step=step, setup=setup), 10)

    assert measured.step_ms == 1.0
    assert seen == list(range(10))


def test_garbage_is_not_collected_inside_and_is_again_afterwards() -> None:
    device = Clockwork(lambda _: 1.0)
    enabled: list[bool] = []

    def step() -> None:
        enabled.append(gc.isenabled())
        device.step()

    time_rounds(device, Subject(step=step), 1.0, deadline(device))

    assert set(enabled) == {False}
    assert gc.isenabled()


def test_garbage_collection_comes_back_when_the_step_raises() -> None:
    device = Clockwork(lambda _: 1.0)

    def step() -> None:
        device.step()
        if device.steps == 17:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        time_rounds(device, Subject(step=step), 1.0, deadline(device))

    assert gc.isenabled()


def test_disturbed_rounds_are_repeated() -> None:
    device = Clockwork(lambda _: 10.0)
    device.troubles = lambda steps: "hot" if steps == 3 else None

    timing = time_rounds(device, subject(device), 10.0, deadline(device))

    assert len(timing.rounds) == ROUNDS
    assert timing.dirty == ()


def test_a_machine_that_stays_disturbed_makes_the_run_dirty() -> None:
    device = Clockwork(lambda _: 10.0)
    device.troubles = lambda _: "the GPU is throttling"

    timing = time_rounds(device, subject(device), 10.0, deadline(device))

    assert len(timing.rounds) == MOST_REPEATS + 1
    assert timing.dirty == ("the GPU is throttling",)


def test_a_recompile_inside_the_phase_does_it_again() -> None:
    device = Clockwork(lambda _: 10.0)
    device.counters = lambda steps: int(steps > 5)

    timing = time_rounds(device, subject(device), 10.0, deadline(device))

    assert device.steps == 2 * ROUNDS
    assert timing.dirty == ()


def test_counters_that_never_stand_still_make_the_run_dirty() -> None:
    device = Clockwork(lambda _: 10.0)
    device.counters = lambda steps: steps

    timing = time_rounds(device, subject(device), 10.0, deadline(device))

    assert timing.dirty == (
        "compile or allocator counters moved while the step was timed",
    )


def test_a_step_that_drifts_while_it_is_timed_makes_the_run_dirty() -> None:
    device = Clockwork(lambda number: 10.0 * 1.01**number)

    timing = time_rounds(device, subject(device), 10.0, deadline(device))

    assert device.steps == 2 * ROUNDS
    assert timing.dirty == ("the step drifted by +10.5% while it was timed",)


def test_a_step_that_has_warmed_up_by_the_second_time_is_clean() -> None:
    device = Clockwork(lambda number: 10.0 if number > ROUNDS else 12.0 - 0.1 * number)

    timing = time_rounds(device, subject(device), 10.0, deadline(device))

    assert [r.step_ms for r in timing.rounds] == [10.0] * ROUNDS
    assert timing.dirty == ()


@pytest.mark.parametrize(
    ("times_ms", "drift"),
    [
        ([10.0] * 10 + [10.2] * 10, 0.02),
        ([10.0] * 10 + [9.0] * 10, -0.1),
        ([10.0] * 10 + [10.09] * 10, 0.0),
        ([8.0, 12.0] * 5 + [8.6, 12.6] * 5, 0.0),
        ([10.0] * 3 + [11.0] * 3, 0.0),
        ([10.0] * 4 + [11.0] * 4, 0.1),
        ([], 0.0),
    ],
)
def test_a_drift_is_more_than_noise_and_more_than_a_warm_up_takes_for_steady(
    times_ms: list[float], drift: float
) -> None:
    assert drift_of(times_ms) == pytest.approx(drift)


def test_the_time_cap_leaves_what_was_measured_and_says_so() -> None:
    device = Clockwork(lambda _: 30_000.0)

    timing = time_rounds(
        device, subject(device), 30_000.0, deadline(device, seconds=65)
    )

    assert [r.step_ms for r in timing.rounds] == [30_000.0, 30_000.0]
    assert timing.dirty == ("the time cap left room for 2 of 5 rounds",)


def test_it_is_followed_before_each_round_and_never_within() -> None:
    device = Clockwork(lambda _: 150.0)
    said: list[tuple[str, int]] = []

    time_rounds(
        device,
        subject(device),
        150.0,
        deadline(device),
        lambda doing: said.append((doing, device.steps)),
    )

    assert said == [(f"round {n + 1}/5", n) for n in range(LEAST_ROUNDS)]


def test_a_round_that_is_repeated_keeps_its_number() -> None:
    device = Clockwork(lambda _: 150.0)
    disturbances = iter([None, None, "throttled", None])
    device.disturbance = lambda: next(disturbances, None)  # type: ignore[method-assign]
    said: list[str] = []

    time_rounds(device, subject(device), 150.0, deadline(device), said.append)

    assert said[:3] == ["round 1/5", "round 2/5", "round 2/5"]


def test_between_two_rounds_the_machine_is_looked_at_once() -> None:
    device = Clockwork(lambda _: 10.0)
    looks: list[int] = []
    device.troubles = looks.append  # type: ignore[assignment]

    timing = time_rounds(device, subject(device), 10.0, deadline(device))

    assert len(timing.rounds) == 20
    assert looks == list(range(21))
