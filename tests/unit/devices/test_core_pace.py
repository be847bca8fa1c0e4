"""A run is doubted whose rounds ran on a core that was slower than around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from scripted_steps import Clockwork

from pytest_gpuperf.devices import sentinels as contention
from pytest_gpuperf.devices.process_time import HostClock
from pytest_gpuperf.devices.sentinels import CorePace
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Batches, Subject
from pytest_gpuperf.measure.timing import Round, core_slowdown


FULL_NS = 40_000


def ticking(monkeypatch: pytest.MonkeyPatch, *readings_ns: int) -> None:
    clock: Iterator[int] = iter(readings_ns)
    monkeypatch.setattr(HostClock, "thread_ns", lambda: next(clock))


def test_an_undisturbed_core_is_as_quick_as_the_quickest_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticking(monkeypatch, *clock(80, 70, 55, 40, 60, 75))
    core = CorePace()
    assert core.undisturbed_ns is None
    assert [core.read() for _ in range(3)] == [70, 40, 60]
    assert core.undisturbed_ns == 40


def clock(*loops_ns: int) -> list[int]:
    """Return what a clock shows before and after each loop."""
    return [shown for taken in loops_ns for shown in (100, 100 + taken)]


def test_a_clock_that_does_not_move_within_the_loop_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticking(monkeypatch, *clock(9, 0))
    core = CorePace()
    assert core.read() is None
    assert core.undisturbed_ns is None


def test_the_loop_does_as_many_turns_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Turns:
        def __init__(self, stop: int) -> None:
            self.stop = stop

        def __iter__(self) -> Iterator[int]:
            counted.append(self.stop)
            return iter(range(self.stop))

    counted: list[int] = []
    monkeypatch.setattr(contention, "range", Turns, raising=False)
    assert contention.loop_ns() > 0
    assert counted == [contention.TURNS]


class SharedCore(Clockwork):
    """Its loop took ``FULL_NS`` once, and takes *slower* times as long now."""

    def __init__(self, slower: float) -> None:
        super().__init__(lambda _: 10.0)
        self._slower = slower
        self.threads = 1.0

    def core_ns(self) -> int:
        return round(FULL_NS * self._slower)

    def undisturbed_core_ns(self) -> int:
        return FULL_NS

    def process_ns(self) -> int:
        return round(self.now_ns() * self.threads)


def dirt_of(device: SharedCore, subject: Subject | None = None) -> tuple[str, ...]:
    measured = measure(
        device, subject or Subject(step=device.step), MeasurePlan(test="t", seconds=5.0)
    )
    return measured.measurement.dirty


def test_a_core_that_a_neighbour_shares_while_a_step_is_timed_makes_the_run_dirty() -> (
    None
):
    assert dirt_of(SharedCore(1.45)) == (
        "the core was 45% slower while the step was timed",
    )


def test_a_core_that_is_a_tenth_slower_is_within_what_an_undisturbed_one_scatters() -> (
    None
):
    assert dirt_of(SharedCore(1.10)) == ()


def timed(step_ms: float, core: float) -> Round:
    return Round(
        step_ms=step_ms,
        process_ms=step_ms,
        unwaited_ms=step_ms,
        span_ms=None,
        waiting_share=None,
        disturbance=None,
        core_ns=round(core * FULL_NS),
    )


@pytest.mark.parametrize(
    ("shared", "slowdown"),
    [
        pytest.param(17, None, id="three rounds had it alone, and count"),
        pytest.param(18, 0.5, id="two rounds are too few to count alone"),
        pytest.param(20, 0.5, id="none had it alone"),
    ],
)
def test_only_the_rounds_that_count_must_have_had_the_core(
    shared: int, slowdown: float | None
) -> None:
    # Next to a neighbour a step takes longer too, so the quick rounds are the others.
    rounds = [*[timed(15.0, 1.5)] * shared, *[timed(10.0, 1.0)] * (20 - shared)]
    assert core_slowdown(rounds, FULL_NS) == slowdown


def test_without_a_reading_nobody_knows() -> None:
    assert core_slowdown([timed(15.0, 1.5)], None) is None
    assert core_slowdown([replace(timed(15.0, 1.5), core_ns=None)], FULL_NS) is None


def test_threads_of_the_step_itself_are_no_neighbour() -> None:
    device = SharedCore(1.45)
    device.threads = 1.2
    assert dirt_of(device) == ()


def test_workers_of_a_loader_are_no_neighbour() -> None:
    device = SharedCore(1.45)
    batches = Batches([0] * 1000)

    def step() -> None:
        batches.take()
        device.step()

    assert dirt_of(device, Subject(step=step, batches=batches)) == ()
