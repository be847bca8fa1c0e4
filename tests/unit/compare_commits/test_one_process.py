"""What a process in which both versions stand is asked, and what becomes of its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import a_measurement
from builders import a_result
from scripted_device import ScriptedDevice

from pytest_gpuperf.compare_commits.one_process import Together
from pytest_gpuperf.compare_commits.pairs import Both
from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.errors import RunError
from pytest_gpuperf.model.ab import AbResult
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner.fork_server import Job
from pytest_gpuperf.runner.relocation import Relocation
from pytest_gpuperf.runner.request import Project
from pytest_gpuperf.runner.request import RunRequest
from pytest_gpuperf.runner.screening import Case


COMPARISON = {"answer": "same", "why": "it is"}


class Version:
    """A side whose processes answer what they are told to."""

    def __init__(self, answer: object = None, **settings: str) -> None:
        self.settings = {"t": settings}
        self.relocation = Relocation(origin="/a", root="/b")
        self.asked: list[dict[str, Any]] = []
        self.patience_seconds = 0.0
        self.renewed: list[int] = []
        self._answer = answer

    def renew(self, number: int) -> None:
        self.renewed.append(number)

    def request(self, group: tuple[str, ...], number: int) -> RunRequest:
        return RunRequest(
            tests=group,
            device=DeviceKind.CPU,
            project=Project(directory="/b"),
            number=number,
        )

    def ask(self, job: Job, seconds: float) -> object:
        self.asked.append(dict(job.request))
        self.patience_seconds = seconds
        if isinstance(self._answer, str):
            raise RunError(self._answer, ErrorId.GP602)
        return self._answer


def both(seconds: float, step_ms: float | None = 10.0) -> Both:
    measured = a_measurement(step_ms, on=DeviceKind.CPU, test="t")
    result = a_result(measured, test="t", seconds=seconds / 2)
    cases = (Case("t", [result]), Case("t", [result]))
    return Both(before=cases[0], after=cases[1], project=Tolerance())


def told(before: Version, after: Version, pair: Both) -> dict[str, AbResult]:
    return dict(Together(before, after, 60.0)(pair))  # type: ignore[arg-type]


def answered(**comparison: object) -> dict[str, object]:
    return {**COMPARISON, "seconds": 2.0, **comparison}


def test_a_comparison_is_the_time_of_the_call() -> None:
    after = Version(answered(ratio=2.0, steps=56))

    found = told(Version(), after, both(10.0))

    (change,) = found.values()
    assert (change.ratio, change.steps, change.seconds) == (2.0, 56, 2.0)
    (asked,) = after.asked
    assert (asked["call"], asked["tolerance"], asked["detect"]) == ("t", 0.01, 0.03)
    assert asked["after"]["measured"][0]["test"] == "t"
    assert after.patience_seconds == 180.0


@pytest.mark.parametrize(("spent", "left"), [(10.0, 50.0), (59.0, 30.0)])
def test_what_the_pair_left_of_the_cap_is_spent_and_half_of_it_at_least(
    spent: float, left: float
) -> None:
    after = Version(answered(ratio=1.0))

    told(Version(), after, both(spent))

    assert after.asked[0]["seconds"] == left


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answered(why="they cannot"), "they cannot"),
        (
            answered(why="the time cap left room for no quad"),
            "the time cap left room for no quad",
        ),
        (
            "it was killed by signal 9: nothing",
            "it was killed by signal 9: nothing [GP602]",
        ),
        (
            "it exited with 1: Traceback (most recent call last):\n  File\nError: no",
            "it exited with 1: Error: no [GP602]",
        ),
    ],
)
def test_without_a_comparison_there_is_a_reason(answer: object, why: str) -> None:
    (said,) = told(Version(), Version(answer), both(10.0)).values()

    assert (said.ratio, said.why) == (None, why)


def test_versions_that_set_torch_differently_are_not_brought_together() -> None:
    after = Version(threads="2")

    found = told(Version(threads="1"), after, both(10.0))

    why = "threads is 1 before and 2 after, and a process has it once"
    assert found == {"t": AbResult.unknown(why)}
    assert after.asked == []


def test_a_change_is_confirmed_by_processes_of_both_servers_in_turn() -> None:
    before, after = (Version(answered(answer="slower", ratio=1.2)) for _ in range(2))

    found = told(before, after, both(10.0))

    asked = [*before.asked, *after.asked]
    assert [r["number"] for r in after.asked] == [0, 2, 4]
    assert [r["number"] for r in before.asked] == [1, 3, 5]
    assert (before.renewed, after.renewed) == ([1, 3, 5], [2, 4])
    assert all(r["before"]["run"]["number"] == r["number"] for r in asked)
    assert all(r["after"]["run"]["number"] == r["number"] for r in asked)
    assert sorted(r["seconds"] for r in asked) == [*[50.0 / 6] * 5, 50.0]
    (change,) = found.values()
    assert (change.answer, change.processes) == (Answer.SLOWER, 6)


def test_a_change_that_the_next_process_does_not_show_is_undecided() -> None:
    before = Version(answered(answer="same", ratio=0.99))

    found = told(before, Version(answered(answer="slower", ratio=1.2)), both(10.0))

    (change,) = found.values()
    assert (change.answer, change.processes) == (Answer.INCONCLUSIVE, 2)


def test_a_change_that_cannot_be_confirmed_is_undecided() -> None:
    before = Version(answered(why="they cannot"))

    found = told(before, Version(answered(answer="slower", ratio=1.2)), both(10.0))

    (change,) = found.values()
    assert change.answer is Answer.INCONCLUSIVE
    assert change.why.endswith("too few to blame; the next one: they cannot")


def test_a_call_without_a_time_is_left_out() -> None:
    assert told(Version(), Version(), both(10.0, step_ms=None)) == {}


def test_the_scripted_device_plays_both_scripts(tmp_path: Path) -> None:
    for name, step_ms in (("before", 10.0), ("after", 12.0)):
        script = {"*": {"step_ms": step_ms}}
        (tmp_path / name).write_text(json.dumps(script), encoding="utf-8")
    device = ScriptedDevice.playing_both(
        str(tmp_path / "before"), str(tmp_path / "after"), "t.py::t"
    )
    taken_ms = []
    for name in ("t.py::t#before", "t.py::t#after"):
        start_ns = device.now_ns()
        device.prepare(lambda: None, name)()
        taken_ms.append((device.now_ns() - start_ns) / 1e6)

    assert taken_ms == [10.0, 12.0]
    assert not device.can_share
