"""The oracle of syncs against a GPU whose clock is moved by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest


sys.path.append(str(Path(__file__).parents[2] / "gpu"))

from sync_oracle import Oracle


CYCLES_PER_MS = 1_000_000.0


class FakeGpu:
    """``torch.cuda`` as far as the oracle uses it: one queue, and a host clock in ms."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.busy_until_ms = 0.0
        self.slept: list[float] = []

    def _sleep(self, cycles: int) -> None:
        ms = cycles / CYCLES_PER_MS
        self.slept.append(ms)
        self.busy_until_ms = max(self.busy_until_ms, self.now_ms) + ms

    def synchronize(self) -> None:
        self.now_ms = max(self.now_ms, self.busy_until_ms)

    def Event(self, **_: bool) -> FakeEvent:  # noqa: N802, torch's name
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = max(self.gpu.busy_until_ms, self.gpu.now_ms)

    def query(self) -> bool:
        return self.gpu.now_ms >= self.at_ms

    def synchronize(self) -> None:
        self.gpu.now_ms = max(self.gpu.now_ms, self.at_ms)

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at_ms - self.at_ms


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def oracle(gpu: FakeGpu) -> Oracle:
    found = Oracle.of(SimpleNamespace(cuda=gpu))
    gpu.slept.clear()
    return Oracle(
        torch=found.torch,
        cycles_per_ms=found.cycles_per_ms,
        now_ns=lambda: int(gpu.now_ms * 1e6),
    )


def taking(gpu: FakeGpu, host_ms: float) -> Callable[[], None]:
    def code() -> None:
        gpu.now_ms += host_ms

    return code


def nothing() -> None:
    """Enqueue nothing."""


def test_the_speed_of_a_sleep_is_read_between_two_events(oracle: Oracle) -> None:
    assert oracle.cycles_per_ms == pytest.approx(CYCLES_PER_MS)


def test_code_that_returns_while_the_gpu_sleeps_did_not_wait(
    gpu: FakeGpu, oracle: Oracle
) -> None:
    assert oracle.waits(lambda: (nothing, taking(gpu, 3.0))) is False


def test_code_that_returns_after_the_sleep_waited(gpu: FakeGpu, oracle: Oracle) -> None:
    assert oracle.waits(lambda: (nothing, gpu.synchronize)) is True


def test_a_sleep_outlasts_slow_code_that_does_not_wait(
    gpu: FakeGpu, oracle: Oracle
) -> None:
    waited = oracle.waits(lambda: (nothing, taking(gpu, 250.0)))

    assert waited is False
    assert sum(gpu.slept) == pytest.approx(2500.0)
    assert max(gpu.slept) == pytest.approx(10.0)


def test_what_loads_once_is_loaded_before_the_question(
    gpu: FakeGpu, oracle: Oracle
) -> None:
    """A first call that waits is not the code's."""
    runs: list[int] = []

    def code() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            gpu.synchronize()

    assert oracle.waits(lambda: (nothing, code)) is False
    assert runs == [0, 1, 2]


def test_an_event_that_stands_behind_the_sleep_is_waited_for(
    gpu: FakeGpu, oracle: Oracle
) -> None:
    def prepare() -> tuple[Callable[[], None], Callable[[], None]]:
        event = gpu.Event()
        return event.record, event.synchronize

    assert oracle.waits(prepare) is True
