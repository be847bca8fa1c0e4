"""Work without a sync in between: it warms a GPU up, and its clock is read under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from queueing_gpu import QueueingGpu
from rank_threads import ThreadPeers, together
from scripted_steps import Clockwork, deadline, subject

from pytest_gpuperf.distributed.device import AgreedDevice
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import clock_under_load
from pytest_gpuperf.measure.warmup import HEATING_MS, WINDOW, warm_up
from pytest_gpuperf.model.measurement import Measurement


AT_WORK, IDLE = 1500, 1980


class Clocked(QueueingGpu):
    """Its clock is high while it has nothing to do; *at_work* are the readings else."""

    def __init__(self, *at_work: int | None) -> None:
        super().__init__()
        self.readings: list[int | None] = []
        self._at_work: Iterator[int | None] = cycle(at_work or (AT_WORK,))

    def clock_mhz(self) -> int | None:
        is_idle = max(self._done_ns.values()) <= self._clock_ns
        self.readings.append(IDLE if is_idle else next(self._at_work))
        return self.readings[-1]


def now_ms(device: QueueingGpu) -> float:
    return device.now_ns() / 1e6


@pytest.mark.parametrize("gpu_ms", [0.5, 30.0, 150.0])
def test_a_gpu_is_warmed_up_by_a_second_of_queued_work(gpu_ms: float) -> None:
    device = QueueingGpu()
    said: list[float] = []

    def follow(_: str) -> None:
        said.append(now_ms(device))

    warmth = warm_up(device, device.step(0.2, gpu_ms), device.deadline(), follow)

    assert warmth.unsteady is None
    before, after = said[-2:]  # the block that made two, and the one behind the queues
    assert after - before >= HEATING_MS
    assert device.synchronized <= 100


def test_steps_that_are_done_when_they_return_have_no_queue() -> None:
    device = Clockwork(lambda _: 10.0)

    warm_up(device, subject(device), deadline(device))

    assert device.steps == 2 * WINDOW + 1


def test_what_heat_does_to_a_step_is_waited_for() -> None:
    device = QueueingGpu()

    def step() -> None:
        device.host(0.1)
        device.enqueue(11.0 if now_ms(device) > 700 else 10.0)

    warmth = warm_up(device, Subject(step=step), device.deadline())

    assert warmth.unsteady is None
    assert warmth.step_ms == pytest.approx(11.1)


@pytest.mark.parametrize("seconds", [0.3, 0.6, 1.2])
def test_the_time_cap_ends_the_queues_and_the_step_is_as_steady_as_it_was(
    seconds: float,
) -> None:
    device = QueueingGpu()

    warmth = warm_up(device, device.step(0.2, 10.0), device.deadline(seconds))

    assert warmth.unsteady is None
    assert now_ms(device) <= 1e3 * seconds


def test_the_clock_is_read_while_the_gpu_works() -> None:
    device = Clocked()

    measured = measure(
        device, device.step(0.2, 5.0), MeasurePlan(test="t", seconds=60.0)
    )

    assert measured.measurement.board.sm_mhz == AT_WORK
    assert device.readings == [AT_WORK] * 5


def read(device: Clocked, step: Subject, step_ms: float, seconds: float = 60) -> object:
    return clock_under_load(device, step, step_ms, device.deadline(seconds))


@pytest.mark.parametrize(
    ("readings", "clock"),
    [
        ((1500, 1600, 1510, 1400, 1520), 1510),
        ((1500, None, 1510, None, None), 1505),
        ((None,), None),
    ],
)
def test_the_median_of_several_readings_is_the_clock(
    readings: tuple[int | None, ...], clock: int | None
) -> None:
    device = Clocked(*readings)

    assert read(device, device.step(0.2, 5.0), 5.2) == clock


@pytest.mark.parametrize(
    ("step_ms", "seconds", "count"),
    [
        (5.0, 60.0, 5),
        (200.0, 60.0, 2),
        (3000.0, 60.0, 1),
        (3000.0, 1.0, 0),
        (0.0, 60.0, 5),
    ],
)
def test_long_steps_are_read_less_often_and_none_beyond_the_cap(
    step_ms: float, seconds: float, count: int
) -> None:
    device = Clocked()

    found = read(device, device.step(0.1, step_ms), step_ms, seconds)

    assert len(device.readings) == count
    assert found == (AT_WORK if count and step_ms else (IDLE if count else None))


@pytest.mark.parametrize("clock", [lambda _: 1410, lambda _: None])
def test_a_device_without_queues_is_read_as_it_is(
    clock: Callable[[object], int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Clockwork(lambda _: 10.0)
    monkeypatch.setattr(Clockwork, "clock_mhz", clock)

    found = clock_under_load(device, subject(device), 10.0, deadline(device))

    assert found == clock(device)
    assert device.steps == 0


class EachForItself(AgreedDevice):
    """Ranks of which each shows what it has measured itself."""

    def together(self, own: Measurement, run: Callable[[], object]) -> Measurement:
        return own


def test_ranks_that_read_different_clocks_queue_the_same_number_of_steps() -> None:
    def act(rank: int, peers: ThreadPeers) -> tuple[int, int | None]:
        own = Clocked(*([None] if rank else [AT_WORK]))
        step = own.step(0.2, 5.0 + 7 * rank)
        found = measure(
            EachForItself(own, peers), step, MeasurePlan(test="t", seconds=60.0)
        )
        return own.steps, found.measurement.board.sm_mhz

    (first, seen), (second, unseen) = together(2, act)

    assert first == second
    assert (seen, unseen) == (AT_WORK, None)
