"""One test that does harm has a clear verdict, and every other test keeps its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from builders import a_measurement, a_result, a_run, an_entry
from scripted_project import ON
from whole_run import Folder, WholeRun

from pytest_gpuperf.baselines.format import why_unstorable
from pytest_gpuperf.devices.base import timed_by_the_host
from pytest_gpuperf.devices.cpu import CpuDevice
from pytest_gpuperf.errors import ErrorId, RunError, UsageError
from pytest_gpuperf.judge.readings import unreal_time
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.run import Ending, Report, StepCall
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.runner.pool import results_of
from pytest_gpuperf.runner.rounds import REPORT_IT, ErrorIsolation
from pytest_gpuperf.runner.screening import Case


# A run with many of them

TESTS = """
import json

def step(): pass

def test_good(gpuperf): gpuperf(step, ms=20)
def test_slow(gpuperf): gpuperf(step, ms=5)
def test_zero_time(gpuperf): gpuperf(step)
def test_zero_time_with_a_budget(gpuperf): gpuperf(step, ms=20)
def test_time_went_back(gpuperf): gpuperf(step)
def test_clock_broke_later(gpuperf): gpuperf(step, ms=9)
def test_zero_time_is_caught(gpuperf):
    try:
        gpuperf(step, ms=20)
    except BaseException:
        pass
def test_zero_time_compared(gpuperf): gpuperf.compare(step, step, speedup=1.0)
def test_huge_count(gpuperf): gpuperf(step)
def test_negative_count(gpuperf): gpuperf(step)
@gpuperf.ranks(10**9)
def test_endless_ranks(gpuperf): gpuperf(step)
def test_no_json(gpuperf):
    gpuperf(step)
    json.dumps = lambda *_, **__: "{"
def test_null(gpuperf):
    gpuperf(step)
    json.dumps = lambda *_, **__: "null"
def test_other_shape(gpuperf):
    gpuperf(step)
    json.dumps = lambda *_, **__: '[{"test": 1}]'
def test_surrogates(gpuperf): gpuperf(step, name="\\ud800", ms=20)
def test_long_name(gpuperf): gpuperf(step, name="x" * 100_000, ms=20)
@pytest.mark.parametrize("value", ["y" * 100_000], ids=["z" * 100_000])
def test_long_id(gpuperf, value): gpuperf(step, ms=20)
def test_surrogates_in_an_error(gpuperf): raise ValueError("\\ud800")
def test_many_findings(gpuperf): gpuperf(step, ms=20)
"""

SCRIPT = {
    "*": {"step_ms": 10.0},
    "test_zero_time": {"step_ms": 0.0},
    "test_zero_time_with_a_budget": {"step_ms": 0.0},
    "test_zero_time_is_caught": {"step_ms": 0.0},
    "test_zero_time_compared#compare#before": {"step_ms": 0.0},
    "test_zero_time_compared#compare#after": {"step_ms": 0.0},
    "test_time_went_back": {"step_ms": -1.0},
    "test_clock_broke_later": {"step_ms": [10.0, 0.0]},
    "test_huge_count": {"mem_mb": 1e300},
    "test_negative_count": {"mem_mb": -1.0},
    "test_many_findings": {"syncs": 10_000},
}

STOOD_STILL = "is not a time: 0.0: the clock stopped"

GOOD = ("test_good", "test_surrogates", "test_long_name", "test_many_findings")

FAILURES = {
    "test_slow": "OVER LIMIT ms: 10.00 ms",
    "test_zero_time": STOOD_STILL,
    "test_zero_time_with_a_budget": STOOD_STILL,
    "test_time_went_back": "is not a time: -1.0: the clock",
    "test_clock_broke_later": STOOD_STILL,
    "test_zero_time_is_caught": "budget never judged",
    "test_zero_time_compared": "took 0 ms by the clock: it stopped",
    "test_huge_count": "peak_allocated_bytes is about 2**1017",
    "test_negative_count": "peak_allocated_bytes is -1048576",
    "test_endless_ranks": "gpuperf.ranks(1000000000): each rank is a process",
    "test_no_json": "left a result that is not JSON",
    "test_null": "left a result of another shape",
    "test_other_shape": "left a result of another shape",
    "test_surrogates_in_an_error": "ValueError",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made = Folder(tmp_path_factory.mktemp("harm"))
    made.file(TESTS)
    made.script(SCRIPT)
    return made


@pytest.fixture(scope="module")
def run(folder: Folder) -> WholeRun:
    return folder.run(on=ON)


def test_the_run_ends_as_one_with_failures(folder: Folder, run: WholeRun) -> None:
    assert run.status == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in run.text
    assert folder.results()["exit_status"] == 1


@pytest.mark.parametrize("test", GOOD)
def test_a_good_test_keeps_its_pass_next_to_them(
    folder: Folder, run: WholeRun, test: str
) -> None:
    assert folder.results()["tests"][f"test_it.py::{test}"]["outcome"] == "pass"


@pytest.mark.parametrize(("test", "why"), FAILURES.items())
def test_a_bad_one_fails_by_name_with_its_reason(
    run: WholeRun, test: str, why: str
) -> None:
    assert run.cases[test].outcome == "failure"
    assert why in run.cases[test].text


def test_what_the_others_measured_can_be_accepted_and_the_page_is_written(
    folder: Folder, run: WholeRun
) -> None:
    left = folder.path / ".gpuperf"
    pending = json.loads((left / "pending-scripted.json").read_text())
    assert {"test_it.py::test_good", "test_it.py::test_slow"} <= pending["tests"].keys()
    assert not [key for key in pending["tests"] if "zero_time" in key or "count" in key]
    assert (left / "comment.md").stat().st_size > 100


def test_a_refresh_stores_the_others_and_names_the_one_it_refused(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    folder.file(TESTS)
    folder.script(SCRIPT)
    chosen = "good or (zero_time and not compared and not caught)"

    refresh = folder.run("--gpuperf-update=missing", "-k", chosen, on=ON)

    stored = json.loads((tmp_path / "baselines/scripted.json").read_text())["tests"]
    assert list(stored) == ["test_it.py::test_good"]
    failed = {n for n, case in refresh.cases.items() if case.outcome == "failure"}
    assert failed == {"test_zero_time", "test_zero_time_with_a_budget"}


# The clocks of a measuring process


def frozen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(time, name, lambda: 0)


def frozen_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clocks where freezegun does: as attributes of every module."""
    clocks = {id(getattr(time, name)) for name in CLOCKS}
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if id(value) in clocks:
                monkeypatch.setattr(module, name, lambda: 0)


CLOCKS = (
    "perf_counter_ns",
    "perf_counter",
    "monotonic",
    "monotonic_ns",
    "time",
    "time_ns",
)


@pytest.mark.parametrize("clock", [*CLOCKS, "process_time_ns"])
def test_a_frozen_clock_of_a_test_is_not_the_one_it_is_measured_by(
    monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    device = CpuDevice()
    before = device.now_ns(), device.process_ns()

    frozen(monkeypatch, clock)

    assert device.now_ns() > before[0]
    assert device.process_ns() >= before[1]


def test_nor_is_one_that_is_replaced_in_every_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = CpuDevice()
    before = device.now_ns()

    frozen_everywhere(monkeypatch)

    assert device.now_ns() > before
    assert timed_by_the_host(lambda: None)()[1] > 0


# What a measuring process answers


def measured(ms: float = 10.0, exact: Mapping[str, int] | None = None) -> Measurement:
    return a_measurement(
        ms, test="t.py::test_a", on=DeviceKind.SCRIPTED, exact=exact or {}
    )


def answered(measurement: Measurement) -> list[Any]:
    return [encode(a_result(measurement, test="t.py::test_a"))]


ANSWER = {"test": "t", "ending": "passed"}
SHAPES = [
    *(None, 1, {}, {"error": "x"}, "text", [1], [{}]),
    *([{**ANSWER, "ending": "flew"}], [{**ANSWER, "x": 1}]),
    *([{**ANSWER, "calls": [{}]}], [{**ANSWER, "seconds": 10**400}]),
]


@pytest.mark.parametrize("answer", SHAPES, ids=range(len(SHAPES)))
def test_an_answer_of_another_shape_is_a_death_of_its_tests_alone(answer: Any) -> None:
    results = results_of(("t.py::test_a", "t.py::test_b"), answer)

    if answer == {}:
        assert results == []  # the gate says that no result came
        return
    assert [result.ending for result in results] == [Ending.DIED, Ending.DIED]
    assert "left a result of another shape" in results[0].text


def test_a_dead_process_is_shown_as_it_was() -> None:
    (result,) = results_of(
        ("t.py::test_a",), RunError("was killed by signal 9", ErrorId.GP602)
    )

    assert (result.ending, result.text) == (
        Ending.DIED,
        "was killed by signal 9 [GP602]",
    )


@pytest.mark.parametrize(
    ("measurement", "found"),
    [
        (measured(exact={"syncs": 10**400}), "syncs is about 2**1329"),
        (measured(exact={"syncs": -1}), "syncs is -1"),
        (measured(inf), "step_ms is inf"),
        (measured(nan), "step_ms is nan"),
    ],
)
def test_a_number_that_no_step_shows_fails_its_test(
    measurement: Measurement, found: str
) -> None:
    (result,) = results_of(("t.py::test_a",), answered(measurement))

    assert (result.ending, result.calls) == (Ending.FAILED, ())
    assert result.text.startswith(f"{found}, which no step shows")


def test_a_sound_answer_is_taken_as_it_is() -> None:
    (result,) = results_of(("t.py::test_a",), answered(measured(exact={"syncs": 2})))

    assert result.ending is Ending.PASSED
    assert result.calls[0].measurement == measured(exact={"syncs": 2})


@pytest.mark.parametrize("ms", [0.0, -0.0, -1.0, inf, -inf, nan])
def test_a_time_that_is_none_is_known(ms: float) -> None:
    found = unreal_time(measured(ms))

    assert found is not None
    assert found.startswith("step_ms is not a time: ")
    assert unreal_time(measured(1e-9)) is None


@pytest.mark.parametrize(
    ("run", "place"),
    [
        *((RunSummary.of(measured(ms)), "runs[0].") for ms in (0.0, nan, 1e300)),
        *((a_run(None, exact={"syncs": n}), "counts.syncs:") for n in (-1, 10**400)),
    ],
)
def test_an_entry_that_cannot_be_read_back_is_known_before_it_is_written(
    run: RunSummary, place: str
) -> None:
    why = why_unstorable("t.py::test_a", an_entry(run))

    assert why is not None
    assert why.startswith(f"tests.t.py::test_a.{place}")


# An error of ours


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), RecursionError("x")])
def test_an_error_in_the_judge_fails_the_test_that_it_was_about(
    error: Exception,
) -> None:
    def judge(_: object) -> TestVerdict:
        raise error

    isolation, call = ErrorIsolation(), StepCall(measurement=measured())
    case = Case(
        "t.py::test_a",
        [a_result(test="t.py::test_a", calls=(call,))],
    )
    other = Case("t.py::test_b", [a_result(test="t.py::test_b")])

    verdict = isolation.judged(judge, [call])
    report = isolation.reported(case, lambda: passed(case))

    assert [v.outcome for v in verdict.verdicts] == [Outcome.INCONCLUSIVE]
    assert report.ending is Ending.FAILED
    assert report.text.startswith("t.py::test_a could not be judged: ")
    assert REPORT_IT in report.text
    assert isolation.reported(other, lambda: passed(other)).ending is Ending.PASSED


def test_an_error_in_a_report_fails_the_test_that_it_was_about() -> None:
    case = Case("t.py::test_a", [a_result(test="t.py::test_a")])

    report = ErrorIsolation().reported(case, lambda: passed(case, 1 // 0))

    assert report.ending is Ending.FAILED
    assert report.text.startswith(
        "t.py::test_a could not be reported: ZeroDivisionError"
    )


def test_what_the_user_can_mend_is_said_for_the_whole_run() -> None:
    def judge(_: object) -> TestVerdict:
        msg = "a wrong option"
        raise UsageError(msg, ErrorId.GP101)

    with pytest.raises(UsageError, match="GP101"):
        ErrorIsolation().judged(judge, [StepCall(measurement=measured())])


def passed(case: Case, _: object = None) -> Report:
    return Report(test=case.test, ending=Ending.PASSED)


# Ranks without end
