"""What only some steps do against the baseline, over the steps that both looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import SIMULATED, a_measurement, an_entry, baselines

from pytest_gpuperf.baselines.drift import Leeway, kept
from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.baselines.refresh import new_entry
from pytest_gpuperf.judge.budget import ResolvedBudget
from pytest_gpuperf.judge.calls import varies_by_run
from pytest_gpuperf.judge.process_pairs import judge_call
from pytest_gpuperf.judge.verdict import judge
from pytest_gpuperf.model.ab import Turn
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import FurtherSteps, Measurement
from pytest_gpuperf.model.run import StepCall
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.headline import headline_of


def looked(
    steps: int,
    *waits: int,
    usual: int = 0,
    count: int = 1,
    metric: str = "syncs",
    first: int = 4,
) -> Measurement:
    """Measure a step with *usual* waits, of further *steps* these with *count*."""
    counts = {metric: tuple((number, count) for number in waits)} if waits else {}
    return a_measurement(
        None,
        on=SIMULATED,
        exact={"syncs": 0, "pageable_copies": 0, metric: usual},
        further=FurtherSteps(
            first=first, last=steps, usual={metric: usual}, counts=counts
        ),
    )


def found(before: Measurement, now: Measurement) -> list[tuple[str, str, str]]:
    """Return metric, headline and reason of all that did not pass."""
    entry = new_entry([before, before])
    verdicts = judge("t", [now, now], ResolvedBudget(), Tolerance(), entry).verdicts
    return [
        (v.metric, headline_of(v), v.because)
        for v in verdicts
        if v.outcome is not Outcome.PASS
    ]


SEVENTH = range(7, 101, 7)


def test_a_wait_that_is_new_in_some_steps_fails_with_how_many_were_looked_at() -> None:
    assert found(looked(100), looked(100, *SEVENTH)) == [
        (
            "occasional_syncs",
            "NEW SYNCS: 14 in some steps, was 0 (+14), allowed 0",
            (
                "14 against 0 stored, in each of 2 runs, of the 97 further steps that "
                "both looked at"
            ),
        )
    ]


def test_a_copy_that_comes_more_often_fails_as_a_wait_does() -> None:
    before = looked(100, *range(50, 101, 50), metric="pageable_copies")
    now = looked(100, *SEVENTH, metric="pageable_copies")

    ((metric, headline, _),) = found(before, now)

    assert metric == "occasional_copies"
    assert headline.startswith("MORE UNPINNED COPIES: 14 in some steps, was 2")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(looked(100, *SEVENTH), looked(100, *SEVENTH), id="the same"),
        pytest.param(looked(30), looked(100, 31, 62, 93), id="beyond what was stored"),
        pytest.param(looked(100, 7, 14), looked(20, 7, 14), id="a look that was cut"),
        pytest.param(
            looked(100, 14, first=8), looked(100, 7, 14), id="one that began later"
        ),
        pytest.param(
            looked(100, usual=1), looked(100, *SEVENTH), id="fewer than each had"
        ),
        pytest.param(
            looked(100, 7, 14, usual=1, count=2),
            looked(100, 7, 14, usual=1, count=2),
            id="next to the usual",
        ),
    ],
)
def test_what_is_not_more_over_the_steps_of_both_fails_nothing(
    before: Measurement, now: Measurement
) -> None:
    assert not [one for one in found(before, now) if "occasional" in one[0]]


def test_a_baseline_without_a_look_says_nothing_of_it() -> None:
    before = a_measurement(None, on=SIMULATED, exact={"syncs": 0, "pageable_copies": 0})

    assert found(before, looked(100, *SEVENTH)) == []


def test_fewer_waits_in_some_steps_are_an_improvement() -> None:
    ((metric, headline, _),) = found(looked(100, *SEVENTH), looked(100))

    assert metric == "occasional_syncs"
    assert headline.startswith("IMPROVED syncs in some steps: 0")


def changes(
    before: Measurement, now: Measurement, pairs: int = 2
) -> list[tuple[str, float, float, Turn]]:
    """Return what a comparison of two versions says of some steps."""
    found = judge_call([(before, now)] * pairs, Tolerance()).exact
    return [
        (change.metric, change.before, change.after, change.turn)
        for change in found
        if "occasional" in change.metric
    ]


@pytest.mark.parametrize("metric", ["syncs", "pageable_copies"])
def test_a_comparison_of_two_versions_sees_what_only_some_steps_do(metric: str) -> None:
    before, now = looked(100, metric=metric), looked(100, *SEVENTH, metric=metric)
    judged = judge_call([(before, now)] * 2, Tolerance())
    name = f"occasional_{metric.removeprefix('pageable_')}"

    assert judged.is_worse
    assert judged.settled
    assert changes(before, now) == [(name, 0, 14, Turn.WORSE)]
    assert changes(now, before) == [(name, 14, 0, Turn.BETTER)]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(looked(100, *SEVENTH), looked(100, *SEVENTH), id="the same"),
        pytest.param(looked(30), looked(100, 31, 62, 93), id="a look that was cut"),
        pytest.param(looked(100, usual=1), looked(100, *SEVENTH), id="rarer"),
        pytest.param(
            replace(looked(100), further=None), looked(100, *SEVENTH), id="no look"
        ),
    ],
)
def test_a_comparison_blames_nobody_for_steps_that_one_side_did_not_look_at(
    before: Measurement, now: Measurement
) -> None:
    assert changes(before, now) == []


@pytest.mark.parametrize("metric", ["syncs", "pageable_copies"])
@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"further": FurtherSteps(first=4, last=30)}, id="a cut look"),
        pytest.param({"further": None}, id="no look"),
    ],
)
def test_what_a_comparison_could_not_compare_in_some_steps_is_said(
    metric: str, other: dict[str, Any]
) -> None:
    far = looked(100, 31, 62, 93, metric=metric)
    pair = (replace(far, **other), far)
    name = f"occasional_{metric.removeprefix('pageable_')}"

    for pairs in ([pair], [pair[::-1]], [pair, (far, far)]):
        why = judge_call(pairs, Tolerance()).unmeasured[name]
        assert why == (
            "step 31 has more of them, and not every run got as far; "
            "raise --gpuperf-seconds"
        )


def test_what_every_run_saw_in_some_steps_needs_no_word() -> None:
    near, far = looked(100, *SEVENTH), looked(103, *SEVENTH, 101)

    assert "occasional_syncs" not in judge_call([(near, far)], Tolerance()).unmeasured


def test_waits_that_a_comparison_sees_in_one_pair_of_two_vary() -> None:
    before, now = looked(100), looked(100, *SEVENTH)
    judged = judge_call([(before, now), (before, before)], Tolerance())

    assert not judged.is_worse
    assert [change.turn for change in judged.exact] == [Turn.VARIES]


def test_a_look_is_stored_and_read_back() -> None:
    stored = baselines(SIMULATED, t=an_entry(RunSummary.of(looked(103, 7, 101))))

    assert loads(dumps(stored), "b.json") == stored


@pytest.mark.parametrize(
    ("before", "now", "stays"),
    [
        (looked(100), looked(100), True),
        (looked(100, *SEVENTH), looked(60, *range(7, 61, 7)), True),
        (looked(100), looked(100, *SEVENTH), False),
        (looked(20), looked(100), True),
    ],
)
def test_a_refresh_stores_a_look_that_shows_something_else(
    before: Measurement, now: Measurement, *, stays: bool
) -> None:
    leeway = Leeway(kind=DeviceKind.SIMULATED, tolerance=Tolerance(), runs=2)
    old, new = new_entry([before] * 2), new_entry([now] * 2)

    assert (kept("t", old, new, leeway) is not None) == stays


def test_runs_whose_further_steps_differ_are_taken_for_drawn() -> None:
    def varies(*runs: Measurement) -> bool:
        return varies_by_run([StepCall(measurement=run) for run in runs])

    assert varies(looked(100, 7), looked(100))
    assert not varies(looked(100, 50), looked(40))


def raised_at(step: int) -> Measurement:
    look = FurtherSteps(first=4, last=step - 1, raised=f"step {step} raised IndexError")
    return replace(looked(100), further=look)


@pytest.mark.parametrize("step", [4, 30, 100])
def test_steps_that_the_baseline_knows_and_that_raise_are_not_checked(
    step: int,
) -> None:
    assert [
        (metric, because) for metric, _, because in found(looked(100), raised_at(step))
    ] == [
        (
            metric,
            f"step {step} raised IndexError, and the baseline has later steps",
        )
        for metric in ("occasional_syncs", "occasional_copies")
    ]


def test_data_that_ended_there_when_it_was_stored_is_no_change() -> None:
    assert (
        found(raised_at(30), raised_at(30)) == found(raised_at(4), raised_at(4)) == []
    )
    assert found(raised_at(30), looked(100)) == []


def test_a_side_that_raises_is_not_compared_from_there() -> None:
    judged = judge_call([(looked(100), raised_at(30))] * 2, Tolerance())

    why = "step 30 raised IndexError, and the other side got further"
    assert judged.unmeasured["occasional_syncs"] == why
