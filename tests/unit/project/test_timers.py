"""Timers for the fixture of pytest-benchmark, on a fake CUDA."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from pytest_gpuperf import timers
from pytest_gpuperf.errors import PreflightError


class FakeCuda:
    """Work takes 2 ms on the GPU, and the host a second each time it waits for it."""

    def __init__(self) -> None:
        self.asked_ms = 0.0
        self.now_s = 100.0
        self.log: list[str] = []

    def is_available(self) -> bool:
        return True

    def work(self) -> None:
        self.asked_ms += 2.0

    def synchronize(self) -> None:
        self.now_s += 1.0
        self.log.append("synchronize")

    def Event(self, *, enable_timing: bool) -> FakeEvent:  # noqa: N802 - torch's name
        assert enable_timing
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.at_ms = -1.0

    def record(self) -> None:
        self.at_ms = self._cuda.asked_ms

    def synchronize(self) -> None:
        self._cuda.log.append("wait for the event")

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at_ms - self.at_ms


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=fake))
    clock = SimpleNamespace(perf_counter=lambda: fake.now_s)
    monkeypatch.setattr(timers, "time", clock)
    timers._cuda.cache_clear()
    yield fake
    timers._cuda.cache_clear()


def test_the_host_s_clock_is_read_behind_a_synchronisation(cuda: FakeCuda) -> None:
    start = timers.cuda_sync()
    cuda.work()
    end = timers.cuda_sync()

    assert end - start == 1.0
    assert cuda.log == ["synchronize", "synchronize"]


def test_events_give_the_gpu_s_time_in_seconds_and_wait_at_the_end(
    cuda: FakeCuda,
) -> None:
    start = timers.cuda_event()
    cuda.work()
    cuda.work()
    end = timers.cuda_event()

    assert cuda.log == []
    assert end - start == 0.004
    assert cuda.log == ["wait for the event"]


@pytest.mark.parametrize("timer", [timers.cuda_sync, timers.cuda_event])
def test_without_cuda_a_timer_says_so_at_its_first_call(
    cuda: FakeCuda, timer: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "is_available", lambda: False)

    with pytest.raises(PreflightError) as caught:
        timer()

    assert str(caught.value) == (
        f"pytest_gpuperf.timers.{timer.__name__}: torch sees no CUDA device here; leave "
        "out --benchmark-timer, or run on a machine that has one [GP402]"
    )


def test_the_timers_can_be_named_without_importing_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import pytest_gpuperf.timers as t; "
        "print(t.cuda_sync.__module__, t.cuda_event.__name__)"
    )

    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert said.stdout == "pytest_gpuperf.timers cuda_event\n"
