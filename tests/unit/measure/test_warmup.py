"""Warm-up ends when compile counters, allocator and times are all quiet."""

from __future__ import annotations

import random

import pytest
from scripted_steps import Clockwork, deadline, subject

from pytest_gpuperf.measure.warmup import MOST_WARMUP_STEPS, WINDOW, Warmth, warm_up


def test_a_flat_step_needs_two_blocks() -> None:
    device = Clockwork(lambda _: 10.0)

    warmth = warm_up(device, subject(device), deadline(device))

    assert warmth == Warmth(step_ms=10.0, steps=2 * WINDOW)


def test_a_slow_start_and_an_autotune_spike_are_left_behind() -> None:
    device = Clockwork(lambda n: 500.0 if n in {1, 9} else 10.0)

    warmth = warm_up(device, subject(device), deadline(device))

    assert warmth.step_ms == 10.0
    assert warmth.unsteady is None


def test_a_clock_ramp_is_waited_out() -> None:
    device = Clockwork(lambda n: 10.0 + 0.8 * 0.93**n)

    warmth = warm_up(device, subject(device), deadline(device))

    assert warmth.unsteady is None
    assert warmth.step_ms == pytest.approx(10.0, rel=0.015)


def test_a_recompile_in_the_block_keeps_the_warm_up_going() -> None:
    device = Clockwork(lambda _: 10.0)
    device.counters = lambda steps: steps // 10

    until_quiet = lambda steps: min(steps, 40) // 10  # noqa: E731
    quiet = Clockwork(lambda _: 10.0)
    quiet.counters = until_quiet

    never = warm_up(device, subject(device), deadline(device, seconds=1000))
    later = warm_up(quiet, subject(quiet), deadline(quiet))

    assert never.unsteady == (
        f"the step never became steady: after {MOST_WARMUP_STEPS} steps of warm-up"
    )
    assert later.unsteady is None
    assert later.steps == 56


def test_a_step_that_grows_for_ever_is_never_steady() -> None:
    device = Clockwork(lambda n: 1.0 + 0.1 * n)

    warmth = warm_up(device, subject(device), deadline(device))

    assert warmth.steps == MOST_WARMUP_STEPS
    assert warmth.unsteady == (
        f"the step never became steady: after {MOST_WARMUP_STEPS} steps of warm-up"
    )


def test_a_noisy_step_is_steady_within_its_own_noise() -> None:
    noise = random.Random(0)  # noqa: S311 - noise, no secret
    device = Clockwork(lambda _: 10.0 * noise.gauss(1.0, 0.05))

    warmth = warm_up(device, subject(device), deadline(device))

    assert warmth.unsteady is None
    assert warmth.steps <= 6 * WINDOW


def test_the_time_cap_ends_the_warm_up_of_a_step_of_thirty_seconds() -> None:
    device = Clockwork(lambda _: 30_000.0)

    warmth = warm_up(device, subject(device), deadline(device, seconds=60))

    assert warmth.step_ms == 30_000.0
    assert warmth.unsteady == ("the step never became steady: the time cap was reached")
    assert device.steps <= 4


def test_a_step_of_a_microsecond_is_grouped_into_samples() -> None:
    device = Clockwork(lambda _: 0.001)

    warmth = warm_up(device, subject(device), deadline(device))

    assert warmth == Warmth(step_ms=0.001, steps=2 * WINDOW * 200)


def test_a_step_that_takes_no_time_at_all_does_not_divide_by_it() -> None:
    device = Clockwork(lambda _: 0.0)

    warmth = warm_up(device, subject(device), deadline(device))

    assert warmth.step_ms == 0.0


def test_it_is_followed_block_by_block() -> None:
    device = Clockwork(lambda n: 500.0 if n in {1, 9} else 10.0)
    said: list[str] = []

    warmth = warm_up(device, subject(device), deadline(device), said.append)

    assert warmth.steps == 16
    assert said == ["warm-up, step 1", "warm-up, step 9"]
