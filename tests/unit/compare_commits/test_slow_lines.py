"""Which lines of a step take its time: what is seen, and on behalf of which line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from scripted_device import ScriptedDevice

from pytest_gpuperf.measure.plan import Deadline
from pytest_gpuperf.measure.profile import (
    IDLE_NS,
    LEAST_SAMPLES,
    LineSampler,
    LineWaiter,
    findings_of,
    slowest_lines,
)
from pytest_gpuperf.measure.step import subject_of
from pytest_gpuperf.model.finding import Location


# The innermost line of the project needs to know what torch's files are.
pytest.importorskip("torch")

TRAIN = """\
def inner(visit):
    visit()
    return 1

def step(visit):
    visit()
    inner(visit)
    visit()
"""


def at(line: int, function: str = "step") -> Location:
    return Location(file="train.py", line=line, function=function)


def step_in(folder: Path) -> Callable[[Callable[[], object]], object]:
    """Return the step of a file in *folder*."""
    names: dict[str, Any] = {}
    exec(compile(TRAIN, str(folder / "train.py"), "exec"), names)  # noqa: S102  ours
    step: Callable[[Callable[[], object]], object] = names["step"]
    return step


def test_a_line_has_the_share_of_the_looks_that_met_it() -> None:
    seen = Counter({at(3): 150, at(7): 46, at(9): 4})

    found = {f.location: f.percent for f in findings_of(seen)}

    assert found == {at(3): 75.0, at(7): 23.0, at(9): 2.0}


def test_a_line_that_takes_next_to_nothing_is_left_out() -> None:
    seen = Counter({at(3): 197, at(7): 3})

    assert [f.location for f in findings_of(seen)] == [at(3)]


def test_too_few_looks_show_nothing() -> None:
    assert list(findings_of(Counter({at(3): LEAST_SAMPLES - 1}))) == []
    assert list(findings_of(Counter({at(3): LEAST_SAMPLES}))) != []


def test_a_look_meets_the_innermost_line_of_the_project(tmp_path: Path) -> None:
    sampler = LineSampler(str(tmp_path))
    met: list[int | None] = []

    def visit() -> None:
        found = sampler.line_of(sys._getframe())
        met.append(found.line if found else None)

    step_in(tmp_path)(visit)

    assert met == [6, 2, 8]


def test_code_elsewhere_is_no_line_of_the_project(tmp_path: Path) -> None:
    sampler = LineSampler(str(tmp_path / "project"))
    met: list[object] = []

    step_in(tmp_path)(lambda: met.append(sampler.line_of(this_frame())))

    assert met == [None, None, None]


def this_frame() -> FrameType:
    return sys._getframe(1)


class BusyGpu(ScriptedDevice):
    """Has work after some lines, and is looked at twice while it is waited for."""

    def __init__(self, sampler: LineSampler, busy_ns: Iterator[int]) -> None:
        super().__init__({"*": {"step_ms": 1.0}}, run=0)
        self._sampler = sampler
        self._busy_ns = busy_ns
        self._now_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def synchronize(self) -> None:
        assert self._sampler.is_paused
        self._sampler.looks_in_pauses += 2
        self._now_ns += next(self._busy_ns)


def test_kernels_count_for_the_line_before_and_an_idle_gpu_for_none(
    tmp_path: Path,
) -> None:
    sampler = LineSampler(str(tmp_path))
    # Entering step, its lines 6 and 7, in 7 those of inner, which begins and returns.
    lines = [None, 5, 6, 7, 1, 2, 3, 7, 8]
    busy_ns = [IDLE_NS if line in {6, 2} else IDLE_NS - 1 for line in lines]

    step = step_in(tmp_path)

    with LineWaiter(BusyGpu(sampler, iter(busy_ns)), sampler):
        step(int)

    assert {at.line: looks for at, looks in sampler.seen.items()} == {6: 2, 2: 2}
    assert not sampler.is_paused


def test_a_device_without_times_of_its_own_has_no_slow_lines() -> None:
    device = ScriptedDevice({"*": {"step_ms": 1.0}}, run=0)
    subject = subject_of(int).prepared(device, "t.py::test_step")
    until = Deadline.after(10.0, device.now_ns)

    assert slowest_lines(device, subject, "/", 1.0, until) == ()
