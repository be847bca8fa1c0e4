"""Ranks that read different clocks and counters take the same decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from math import inf

import pytest
from rank_threads import ThreadPeers, together
from scripted_steps import Clockwork

from pytest_gpuperf.devices.base import Kernel, MemoryReading
from pytest_gpuperf.devices.compile import CompiledCode
from pytest_gpuperf.distributed.device import AgreedDevice
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.measurement import Measurement


Clocks = Callable[[int], Clockwork]


def measured_by(
    device_of: Clocks, seconds: float = 60.0
) -> list[tuple[Measurement, int, AgreedDevice]]:
    """What each of two ranks measures, the steps that it made, and its device."""
    pytest.importorskip("torch")  # it counts collectives

    def act(rank: int, peers: ThreadPeers) -> tuple[Measurement, int, AgreedDevice]:
        own = device_of(rank)
        device = AgreedDevice(own, peers)
        found = measure(
            device, Subject(step=own.step), MeasurePlan(test="step", seconds=seconds)
        )
        return found.measurement, own.steps, device

    return together(2, act)


def steps_of(found: list[tuple[Measurement, int, AgreedDevice]]) -> list[int]:
    return [steps for _, steps, _ in found]


def test_the_time_of_a_step_is_that_of_the_slowest_rank() -> None:
    found = measured_by(lambda rank: Clockwork(lambda _: 10.0 + 5 * rank))

    for measurement, _, device in found:
        assert measurement.times["step_ms"].q50 == pytest.approx(15.0)
        assert set(device.rounds_ns) == {(10_000_000, 15_000_000)}


def test_a_rank_that_is_not_steady_keeps_all_ranks_warming_up() -> None:
    def growing(rank: int) -> Clockwork:
        return Clockwork(lambda step: 10.0 * 1.01 ** (step * rank))

    found = measured_by(growing)

    steps = steps_of(found)
    assert steps[0] == steps[1] > 200
    assert all(measurement.dirty for measurement, _, _ in found)


def test_a_rank_that_compiles_late_keeps_all_ranks_warming_up() -> None:
    def compiling(rank: int) -> Clockwork:
        device = Clockwork(lambda _: 10.0)
        device.counters = lambda step: rank * min(step, 60)
        return device

    late = steps_of(measured_by(compiling))
    early = steps_of(measured_by(lambda _: Clockwork(lambda _: 10.0)))

    assert late[0] == late[1] > early[0]


def test_the_time_cap_holds_for_all_ranks_at_once() -> None:
    found = measured_by(lambda rank: Clockwork(lambda _: 10.0 + rank), seconds=0.03)

    steps = steps_of(found)
    assert steps[0] == steps[1]
    assert all(measurement.missed for measurement, _, _ in found)


def test_a_disturbance_of_one_rank_repeats_the_round_on_all() -> None:
    def throttled(rank: int) -> Clockwork:
        device = Clockwork(lambda _: 10.0)
        if rank == 1:
            device.troubles = lambda _: "the GPU was throttled by heat"
        return device

    found = measured_by(throttled)

    steps = steps_of(found)
    assert steps[0] == steps[1]
    assert {measurement.dirty for measurement, _, _ in found} == {
        ("rank 1: the GPU was throttled by heat",)
    }


class Memory(Clockwork):
    """Each step needs what its rank says, and ends with what its rank leaves."""

    def __init__(self, peak_bytes: int, left_bytes: int) -> None:
        super().__init__(lambda _: 10.0)
        self._peak_bytes = peak_bytes
        self._ends = count(0, left_bytes)

    def measure_memory(self, step: object, arguments: object) -> MemoryReading:
        self.step()
        return MemoryReading(
            exact={"peak_allocated_bytes": self._peak_bytes}, end_bytes=next(self._ends)
        )


def test_memory_is_that_of_the_rank_that_needs_most_and_leaks_add_up() -> None:
    found = measured_by(lambda rank: Memory(100 - rank, left_bytes=3 * rank))

    steps = steps_of(found)
    assert steps[0] == steps[1]
    for measurement, _, device in found:
        assert measurement.exact["peak_allocated_bytes"] == 100
        assert measurement.exact["growth_bytes"] == 3
        assert device.peak_bytes == (100, 99)


class Slow(Clockwork):
    """Time goes by with each question, as it does while ranks agree."""

    def __init__(self) -> None:
        super().__init__(lambda _: 10.0)

    def work(self) -> None:
        return None

    def process_ns(self) -> int:
        self._clock_ns += 1_000_000
        return self._clock_ns


def test_the_clock_stands_still_while_ranks_agree() -> None:
    def act(rank: int, peers: ThreadPeers) -> list[int]:
        device = AgreedDevice(Slow(), peers)
        return [device.now_ns() for _ in range(3)]

    assert together(2, act) == [[0, 0, 0], [0, 0, 0]]


def test_the_environment_says_how_many_ranks_there_are() -> None:
    def act(rank: int, peers: ThreadPeers) -> object:
        device = AgreedDevice(Clockwork(lambda _: inf), peers)
        return dict(device.environment().software)

    assert together(2, act) == [{"torch": "2.13.0", "ranks": "2"}] * 2


class WithSentinels(Clockwork):
    """Steps of 10 ms, and one sentinel: *play* is shown how often it ran before."""

    def __init__(self, play: Callable[[int], float]) -> None:
        super().__init__(lambda _: 10.0)
        self._play = play

    @contextmanager
    def sentinels(self) -> Iterator[Mapping[str, Kernel]]:
        runs = count()

        def kernel() -> None:
            self._clock_ns += round(self._play(next(runs)) * 1e6)

        yield {"sentinel_gemm_ms": kernel}


def fails(_: int) -> float:
    raise RuntimeError


def test_sentinels_take_what_they_take_on_the_slowest_rank() -> None:
    found = measured_by(lambda rank: WithSentinels(lambda _: 1.0 + rank))

    for measurement, _, _ in found:
        assert measurement.times["sentinel_gemm_ms"].q50 == pytest.approx(2.0)
        assert measurement.times["sentinel_gemm_ms"].samples == 8


def test_sentinels_that_one_rank_cannot_run_no_rank_does() -> None:
    found = measured_by(lambda rank: WithSentinels(fails if rank else lambda _: 1.0))

    for measurement, _, _ in found:
        assert "sentinel_gemm_ms" not in measurement.times
        assert measurement.times["step_ms"].q50 == pytest.approx(10.0)


def test_a_sentinel_that_fails_later_leaves_no_rank_alone() -> None:
    found = measured_by(
        lambda rank: WithSentinels(lambda run: fails(run) if rank and run else 1.0)
    )

    for measurement, _, _ in found:
        assert measurement.times["sentinel_gemm_ms"].q50 == pytest.approx(1.0)


def test_all_compiled_code_of_each_rank_counts_and_no_rank_runs_a_step_alone() -> None:
    class Compiling(Clockwork):
        asked_to_run = True

        def compiled(self, run: Callable[[], object] | None) -> CompiledCode:
            self.asked_to_run = run is not None
            return CompiledCode()

    devices = [Compiling(lambda _: 10.0), Compiling(lambda _: 10.0)]

    found = measured_by(lambda rank: devices[rank])

    assert [m.exact["graph_breaks"] for m, _, _ in found] == [0, 0]
    assert [device.asked_to_run for device in devices] == [False, False]
