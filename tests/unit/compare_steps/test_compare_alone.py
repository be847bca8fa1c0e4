"""Two steps in turns on a busy machine: waits for a core are no work of theirs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from scripted_steps import Clockwork

from pytest_gpuperf.compare_steps.measure import WITHOUT_WAITS, compare_steps
from pytest_gpuperf.devices import sentinels as contention
from pytest_gpuperf.devices.base import ThreadWork
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.ab import AbResult, Answer


pytest.importorskip("torch")

BEGUN = ThreadWork(thread_ns=100, process_ns=1000, waits=3)


@pytest.mark.parametrize(
    ("thread_ns", "process_ns", "waits", "alone_ns"),
    [
        pytest.param(1100, 2000, 3, 1000, id="it worked"),
        pytest.param(1100, 2010, 3, 1000, id="another thread hardly did"),
        pytest.param(1100, 2020, 3, None, id="another thread worked, too"),
        pytest.param(1100, 2000, 4, None, id="it waited"),
        pytest.param(100, 1000, 3, None, id="the clock stopped"),
    ],
)
def test_a_thread_worked_alone_if_nothing_else_can_have_taken_time(
    thread_ns: int, process_ns: int, waits: int, alone_ns: int | None
) -> None:
    now = ThreadWork(thread_ns=thread_ns, process_ns=process_ns, waits=waits)

    assert now.alone_ns(BEGUN) == alone_ns


@pytest.mark.parametrize("children", ["", "77 78 ", None])
def test_a_thread_with_children_or_of_another_system_says_nothing_of_its_work(
    children: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "counts_waits", lambda: True)
    file = tmp_path / "children"
    if children is not None:
        file.write_text(children)

    assert (contention.work_so_far(file) is not None) == (children == "")


def test_a_kernel_that_counts_no_waits_says_nothing_of_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "counts_waits", lambda: False)
    file = tmp_path / "children"
    file.touch()

    assert contention.work_so_far(file) is None


class Crowded(Clockwork):
    """A device on which a step waits as long for its core as it works, or up to thrice."""

    def __init__(self) -> None:
        super().__init__(lambda _: 0.0)
        self._luck = random.Random(7)  # noqa: S311 - noise, no secret
        self._worked_ns = self._others_ns = self._slept = 0

    def step_of(
        self, work_ms: float, *, sleep_ms: float = 0.0, others_ms: float = 0.0
    ) -> Subject:
        def step() -> None:
            self.steps += 1
            worked_ns = round(work_ms * self._luck.gauss(1, 0.004) * 1e6)
            self._worked_ns += worked_ns
            self._others_ns += round(others_ms * 1e6)
            self._slept += sleep_ms > 0
            crowd = self._luck.uniform(2, 4)
            self._clock_ns += round(worked_ns * crowd + sleep_ms * 1e6)

        return Subject(step=step)

    def work(self) -> ThreadWork:
        return ThreadWork(
            thread_ns=self._worked_ns,
            process_ns=self._worked_ns + self._others_ns,
            waits=self._slept,
        )

    def compare(self, before: Subject, after: Subject) -> AbResult:
        return compare_steps(
            self, before, after, seconds=3600.0, tolerance=0.01, detect=0.03
        )


def test_work_is_compared_where_steps_do_nothing_else() -> None:
    device = Crowded()

    same = device.compare(device.step_of(10.0), device.step_of(10.0))
    slower = device.compare(device.step_of(10.0), device.step_of(10.5))

    assert (same.answer, same.quads) == (Answer.SAME, 14)
    assert (slower.answer, slower.quads) == (Answer.SLOWER, 14)
    assert slower.after_ms == pytest.approx(10.5, rel=0.01)
    assert slower.why.endswith(WITHOUT_WAITS)


def test_a_step_that_sleeps_longer_is_slower_though_it_works_no_more() -> None:
    device = Crowded()

    found = device.compare(device.step_of(10.0), device.step_of(10.0, sleep_ms=20.0))

    assert found.answer is Answer.SLOWER
    assert WITHOUT_WAITS not in found.why


def test_a_step_that_lets_other_threads_work_is_compared_by_the_wall() -> None:
    device = Crowded()

    found = device.compare(device.step_of(10.0), device.step_of(10.0, others_ms=5.0))

    assert found.after_ms is not None
    assert found.after_ms > 15.0
    assert WITHOUT_WAITS not in found.why


def test_a_rare_wait_of_its_own_hides_no_work() -> None:
    device = Crowded()
    steps = iter(range(10**6))
    often, rare = device.step_of(10.0), device.step_of(10.0, sleep_ms=1.0)

    def step() -> None:
        (rare if next(steps) % 50 == 49 else often).step()

    found = device.compare(Subject(step=step), device.step_of(10.5))

    assert (found.answer, found.quads) == (Answer.SLOWER, 14)
    assert found.why.endswith(WITHOUT_WAITS)
