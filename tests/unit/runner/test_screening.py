"""One run screens every test, more runs confirm what did not pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from builders import a_finding, a_measurement, a_result, a_test, a_verdict

from pytest_gpuperf.judge.verdict import waits_for_times
from pytest_gpuperf.model.baseline import full_runs
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import Ending, StepCall, TestResult
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict
from pytest_gpuperf.runner.screening import (
    MOST_FRESH_RUNS,
    Case,
    complete,
    confirm,
    screen,
    settled,
    with_counts_of,
)


class Runs:
    """Plays runs: every test passes with one call, unless it says otherwise."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.done: list[tuple[tuple[str, ...], int]] = []
        self.endings: dict[tuple[str, int], Ending] = {}
        self.lost: set[str] = set()
        self.disturbed: set[tuple[str, int]] = set()
        self._seconds = seconds

    def __call__(
        self, groups: Sequence[tuple[str, ...]], number: int
    ) -> Sequence[TestResult]:
        self.done += [(group, number) for group in groups]
        tests = [test for group in groups for test in group]
        return [self._result(t, number) for t in tests if t not in self.lost]

    def _result(self, test: str, number: int) -> TestResult:
        dirty = ("hot",) if (test, number) in self.disturbed else ()
        measured = a_measurement(None, *dirty, test=test, on=DeviceKind.SCRIPTED)
        ending = self.endings.get((test, number), Ending.PASSED)
        return a_result(measured, test=test, ending=ending, seconds=self._seconds)


def judging(
    wanted: dict[str, int], metric: str = "step_ms"
) -> Callable[[Sequence[StepCall]], TestVerdict]:
    """Judge a test settled once it has had *wanted* runs."""

    def judge(calls: Sequence[StepCall]) -> TestVerdict:
        test = calls[-1].measurement.test
        verdict = a_verdict(
            metric, because="so it is", settled=len(calls) >= wanted.get(test, 1)
        )
        return a_test(verdict, test=test)

    return judge


def test_tests_that_pass_are_run_once() -> None:
    runs = Runs()
    groups = [("a",), ("b",)]

    cases = screen(groups, runs)
    confirm(groups, runs, cases, judging({}), seconds=60)

    assert runs.done == [(("a",), 0), (("b",), 0)]


def test_inconclusive_tests_are_confirmed_in_turn() -> None:
    runs = Runs()
    groups = [("a",), ("b",), ("c",)]

    cases = screen(groups, runs)
    confirm(groups, runs, cases, judging({"a": 3, "c": 2}), seconds=60)

    assert runs.done[3:] == [(("a",), 1), (("c",), 1), (("a",), 2)]


@pytest.mark.parametrize(
    ("run_seconds", "needs", "metric", "made"),
    [
        (1, 99, "step_ms", MOST_FRESH_RUNS),
        (40, 99, "step_ms", 2),
        (40, 5, "syncs", 5),
        (40, 5, "peak_allocated_bytes", 5),
    ],
    ids=["never decided", "a time at the cap", "exact", "exact bytes"],
)
def test_a_test_ends_at_the_most_runs_and_a_time_at_the_cap(
    run_seconds: float, needs: int, metric: str, made: int
) -> None:
    runs = Runs(seconds=run_seconds)

    cases = screen([("a",)], runs)
    confirm([("a",)], runs, cases, judging({"a": needs}, metric), seconds=60)

    assert len(cases["a"].results) == made


def test_a_test_that_failed_by_itself_is_not_run_again() -> None:
    runs = Runs()
    runs.endings["a", 0] = Ending.FAILED

    cases = screen([("a",)], runs)
    confirm([("a",)], runs, cases, judging({"a": 5}), seconds=60)

    assert len(runs.done) == 1
    assert cases["a"].calls == {}


def test_a_failure_in_a_later_run_decides() -> None:
    runs = Runs()
    runs.endings["a", 1] = Ending.DIED

    cases = screen([("a",)], runs)
    confirm([("a",)], runs, cases, judging({"a": 5}), seconds=60)

    assert cases["a"].last.ending is Ending.DIED
    assert len(runs.done) == 2


def test_a_test_without_a_result_is_a_dead_one() -> None:
    runs = Runs()
    runs.lost = {"b"}

    cases = screen([("a", "b")], runs)

    assert cases["a"].last.ending is Ending.PASSED
    assert cases["b"].last == TestResult(
        test="b",
        ending=Ending.DIED,
        text="the measuring process gave no result for this test",
    )


def test_tests_of_a_group_are_confirmed_together() -> None:
    runs = Runs()

    cases = screen([("a", "b")], runs)
    confirm([("a", "b")], runs, cases, judging({"b": 2}), seconds=60)

    assert runs.done == [(("a", "b"), 0), (("a", "b"), 1)]
    assert len(cases["a"].results) == 2


def test_a_baseline_without_times_is_made_of_two_runs() -> None:
    runs = Runs()
    cases = screen([("a",)], runs)

    complete([("a",)], runs, cases, {"a": full_runs(DeviceKind.SIMULATED)})

    assert len(cases["a"].results) == 2
    assert {full_runs(k) for k in DeviceKind if k is not DeviceKind.SIMULATED} == {8}


def test_a_refresh_gives_selected_tests_eight_runs_in_turn() -> None:
    runs = Runs()
    groups = [("a",), ("b",), ("c",)]

    cases = screen(groups, runs)
    complete(groups, runs, cases, {"a": 8, "c": 8})

    assert [len(cases[test].results) for test in "abc"] == [8, 1, 8]
    assert [group for group, _ in runs.done[3:7]] == [("a",), ("c",), ("a",), ("c",)]


def test_a_refresh_makes_up_for_disturbed_runs() -> None:
    runs = Runs()
    runs.disturbed = {("a", 0), ("a", 3), ("b", 7)}

    cases = screen([("a",), ("b",)], runs)
    complete([("a",), ("b",)], runs, cases, {"a": 8, "b": 8})

    assert [len(cases[test].results) for test in "ab"] == [10, 9]


def test_a_refresh_on_a_machine_that_is_always_disturbed_comes_to_an_end() -> None:
    runs = Runs()
    runs.disturbed = {("a", number) for number in range(100)}

    cases = screen([("a",)], runs)
    complete([("a",)], runs, cases, {"a": 8})

    assert len(cases["a"].results) == 16


def test_a_refresh_goes_on_to_the_runs_that_each_test_wants() -> None:
    runs = Runs()
    groups = [("a",), ("b", "c"), ("d",)]

    cases = screen(groups, runs)
    complete(groups, runs, cases, {"a": 3, "b": 3, "c": 3})
    complete(groups, runs, cases, {"a": 3, "b": 5, "c": 3})
    complete(groups, runs, cases, {})

    assert [len(cases[test].results) for test in "abcd"] == [3, 5, 5, 1]


def test_a_verdict_cut_short_is_inconclusive_and_says_why() -> None:
    open_verdict = judging({"a": 9})(Case("a", [Runs()(("a",), 0)[0]]).calls["a"])

    verdict = settled(open_verdict)

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.verdicts[0].because == (
        "so it is; no time was left for another run, raise --gpuperf-seconds"
    )


OPEN_TIME = a_verdict("step_ms", Outcome.INCONCLUSIVE, None, None, settled=False)
SAME_SYNCS = a_verdict("syncs", Outcome.PASS, None, None)


@pytest.mark.parametrize(
    ("verdicts", "alone"),
    [
        pytest.param([OPEN_TIME], True, id="a time"),
        pytest.param([OPEN_TIME, SAME_SYNCS], True, id="a time, the rest is as it was"),
        pytest.param([SAME_SYNCS], False, id="nothing is open"),
        pytest.param(
            [OPEN_TIME, replace(SAME_SYNCS, outcome=Outcome.OVER_BUDGET)],
            False,
            id="a count fails",
        ),
        pytest.param(
            [OPEN_TIME, replace(SAME_SYNCS, outcome=Outcome.INCONCLUSIVE)],
            False,
            id="a count is inconclusive",
        ),
        pytest.param(
            [OPEN_TIME, replace(SAME_SYNCS, outcome=Outcome.REGRESSED, settled=False)],
            False,
            id="a count waits for its second run",
        ),
        pytest.param(
            [OPEN_TIME, replace(OPEN_TIME, metric="latency_ms")],
            False,
            id="a time that is read after the rounds",
        ),
    ],
)
def test_more_runs_are_for_times_alone_where_all_else_is_as_it_was(
    verdicts: list[Verdict], *, alone: bool
) -> None:
    assert waits_for_times(a_test(*verdicts)) is alone


def test_a_run_of_times_alone_is_given_the_counts_and_causes_of_the_first() -> None:
    sync = a_finding(blocked_ms=1.0, location=None)
    first = a_measurement(
        None, test="a", on=DeviceKind.SCRIPTED, exact={"syncs": 1}, findings=(sync,)
    )
    bare = a_measurement(None, test="a", on=DeviceKind.SCRIPTED)
    whole = a_measurement(None, test="b", on=DeviceKind.SCRIPTED, exact={"syncs": 2})
    result = a_result(bare, whole, test="a")

    said = with_counts_of({"a": first, "b": first}, result)

    assert [(c.measurement.exact, c.measurement.findings) for c in said.calls] == [
        ({"syncs": 1}, (sync,)),
        ({"syncs": 2}, ()),
    ]
