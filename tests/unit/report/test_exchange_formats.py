"""One run in the formats of other programs: what each says, and that it is one of theirs."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from builders import a_head
from hypothesis import given, strategies as st

from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.measurement import Samples
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report import pytest_benchmark as pytest_benchmark_json
from pytest_gpuperf.report.measured_calls import MeasuredCall, measured_calls
from pytest_gpuperf.report.pytest_benchmark import statistics_of


TEST = "tests/test_a.py::TestStep::test_step[8-a::b]"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def verdict(metric: str, outcome: str, now: float | None = None) -> dict[str, Any]:
    number = {} if now is None else {"now": now}
    return {"metric": metric, "outcome": outcome, "because": "", **number}


VERDICTS = {
    TEST: (
        {
            "test": TEST,
            "verdicts": [
                verdict("step_ms", "pass", 10.2),
                verdict("step_ms", "regressed", 10.2),
                verdict("peak_allocated_bytes", "pass", 104857600),
                verdict("syncs", "pass", 0),
                verdict("latency_ms", "not checked"),
            ],
        },
        {"test": f"{TEST}#again", "verdicts": [verdict("speedup", "pass", 1.3)]},
        {"test": f"{TEST}#nothing", "verdicts": []},
    )
}
RUNS: tuple[Samples, ...] = (
    {"step_ms": (10.0, 10.0, 11.0)},
    {},
    {"step_ms": (10.4, 10.4, 10.4)},
)


def calls() -> list[MeasuredCall]:
    return list(measured_calls(VERDICTS, {TEST: RUNS}))


def test_a_call_has_its_worst_outcome_and_each_number_once() -> None:
    step, again = calls()

    assert (step.outcome, again.outcome) == (Outcome.REGRESSED, Outcome.PASS)
    assert step.values == {
        "step_ms": 10.2,
        "peak_allocated_bytes": 104857600,
        "syncs": 0,
    }
    assert step.step_ms == (10.0, 10.0, 11.0, 10.4, 10.4, 10.4)


def test_a_call_is_named_without_file_and_class() -> None:
    step, again = calls()

    assert (step.name, again.name) == ("test_step[8-a::b]", "test_step[8-a::b]#again")
    assert (step.parameters, step.suffix, again.suffix) == ("8-a::b", "", "#again")


def test_a_cpu_is_named_as_one() -> None:
    hardware = Hardware(kind=DeviceKind.CPU, name="Core i7")
    head = a_head(hardware=hardware)

    document = json.loads(pytest_benchmark_json.dumps(head, (), AT))

    machine = document["machine_info"]
    assert (machine["cpu"], machine["gpu"]) == ({"brand_raw": "Core i7"}, {"name": ""})
    assert document["commit_info"]["id"] == "unversioned"


@given(
    st.lists(
        st.floats(min_value=1e-6, max_value=1e3, allow_nan=False),
        min_size=1,
        max_size=40,
    )
)
def test_times_are_summed_up_as_pytest_benchmark_does(seconds: list[float]) -> None:
    theirs = pytest.importorskip("pytest_benchmark.stats").Stats()
    for value in seconds:
        theirs.update(value)

    ours = statistics_of(seconds)

    exact = {"min", "max", "rounds"}
    counted = {"iqr_outliers", "stddev_outliers", "outliers", "ld15iqr", "hd15iqr"}
    assert list(ours) == list(theirs.fields)
    for name in theirs.as_dict().keys() - counted:
        allowed = 0.0 if name in exact else 1e-9
        assert ours[name] == pytest.approx(
            getattr(theirs, name), rel=allowed, abs=1e-12
        )


@pytest.mark.parametrize(
    "seconds",
    [
        [1.0],
        [1.0, 2.0],
        [1.0, 2.0, 4.0],
        [1.0, 1.5, 2.0, 9.0],
        [1.0, 1.25, 1.5, 2.0, 64.0, 0.125, 1.0],
    ],
)
def test_outliers_are_counted_as_pytest_benchmark_does(seconds: list[float]) -> None:
    theirs = pytest.importorskip("pytest_benchmark.stats").Stats()
    for value in seconds:
        theirs.update(value)

    assert statistics_of(seconds) == theirs.as_dict()


def test_a_run_that_took_no_time_has_no_rate() -> None:
    assert statistics_of([0.0, 0.0])["ops"] == 0
