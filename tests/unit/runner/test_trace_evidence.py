"""Which failures are traced, and what becomes of a device that is taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builders import a_measurement, a_result, a_test, a_verdict

from pytest_gpuperf.errors import ErrorId, UsageError
from pytest_gpuperf.model.budget import Ranks
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import RunMode, TestResult
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.runner.evidence import Verdicts, with_traces
from pytest_gpuperf.runner.request import Planned
from pytest_gpuperf.runner.screening import Case, Group


HERE = Path("artefacts")


def judged(test: str, now: float, limit: float) -> dict[str, TestVerdict]:
    outcome = Outcome.REGRESSED if now > limit else Outcome.PASS
    verdict = a_verdict("step_ms", outcome, now, None, limit=limit)
    return {test: a_test(verdict, test=test)}


def planned(test: str, ranks: Ranks | None = None) -> Planned:
    return Planned(test=test, argument=test, module="t.py", ranks=ranks)


def cases_of(verdicts: Verdicts) -> dict[str, Case]:
    ended = a_result(test="")
    return {test: Case(test, [ended, ended]) for test in verdicts}


class Runs:
    """Traces what it is asked to and keeps the order."""

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[Group], int, RunMode]] = []

    def __call__(
        self, groups: Sequence[Group], number: int, mode: RunMode
    ) -> Sequence[TestResult]:
        self.asked.append((groups, number, mode))
        return [traced(test) for (test,) in groups]


def traced(test: str) -> TestResult:
    measurement = a_measurement(
        None, test=test, on=DeviceKind.SCRIPTED, trace=f"{test}.json.gz"
    )
    return a_result(measurement, test=test)


def test_the_worst_failure_comes_first_and_a_pass_not_at_all() -> None:
    verdicts = {
        "a": judged("a", 12.0, 10.0),
        "ok": judged("ok", 9.0, 10.0),
        "c": judged("c", 1.0, 0.0),
        "d": judged("d", 30.0, 10.0),
    }
    runs = Runs()

    found = with_traces(
        verdicts, [planned(test) for test in verdicts], cases_of(verdicts), runs, HERE
    )

    assert runs.asked == [([("c",), ("d",), ("a",)], 2, RunMode.TRACE)]
    assert {test: calls[test].trace for test, calls in found.items()} == {
        "a": "a.json.gz",
        "ok": "",
        "c": "c.json.gz",
        "d": "d.json.gz",
    }


def test_a_test_of_several_ranks_is_not_traced() -> None:
    verdicts = {"a": judged("a", 12.0, 10.0)}
    runs = Runs()

    found = with_traces(
        verdicts, [planned("a", Ranks(count=2))], cases_of(verdicts), runs, HERE
    )

    assert runs.asked == []
    assert found == verdicts


def test_a_device_that_does_not_come_free_loses_no_verdict() -> None:
    verdicts = {"a": judged("a", 12.0, 10.0)}

    def refuse(
        groups: Sequence[Group], number: int, mode: RunMode
    ) -> Sequence[TestResult]:
        msg = "gpu-0 is in use"
        raise UsageError(msg, ErrorId.GP411)

    found = with_traces(verdicts, [planned("a")], cases_of(verdicts), refuse, HERE)

    assert found == verdicts
