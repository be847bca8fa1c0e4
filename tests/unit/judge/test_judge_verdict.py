"""All verdicts on one test, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from builders import a_finding, a_measurement, an_entry
from hypothesis import given, strategies as st

from pytest_gpuperf.judge.budget import ResolvedBudget
from pytest_gpuperf.judge.context import SuiteContext
from pytest_gpuperf.judge.verdict import judge
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import (
    BUDGET_KEYWORDS,
    METRICS,
    MIB,
    RANKED,
    MetricKind,
    limited_by,
)
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict


NOTHING = ResolvedBudget()
DEFAULT = Tolerance()


SESSION = "2026-01-01T09:00Z-0000"
STILL_NOW = SuiteContext(now=SESSION)


def measured(
    times: Mapping[str, float] | None = None,
    exact: Mapping[str, int] | None = None,
    **fields: Any,
) -> Measurement:
    return a_measurement(times, exact=exact or {}, **fields)


stored = partial(an_entry, session=SESSION)


def verdicts(
    *runs: Measurement,
    budget: ResolvedBudget = NOTHING,
    tolerance: Tolerance = DEFAULT,
    entry: Entry | None = None,
) -> list[tuple[str, Outcome, str]]:
    found = judge("t", runs, budget, tolerance, entry, STILL_NOW).verdicts
    return [(v.metric, v.outcome, v.because) for v in found]


def test_a_gated_metric_with_nothing_to_hold_it_against_has_no_baseline() -> None:
    run = measured({"step_ms": 10.0, "latency_ms": 11.0}, {"syncs": 0})

    assert verdicts(run) == [
        ("step_ms", Outcome.NO_BASELINE, "no baseline and no budget"),
        ("syncs", Outcome.NO_BASELINE, "no baseline and no budget"),
    ]


def test_an_entry_without_the_metric_is_no_baseline() -> None:
    run = measured(exact={"syncs": 0})

    assert verdicts(run, entry=stored(measured({"step_ms": 10.0}))) == [
        ("step_ms", Outcome.NOT_CHECKED, "the cuda device does not measure ms"),
        ("syncs", Outcome.NO_BASELINE, "not in its baseline and no budget"),
    ]


def test_a_budget_alone_gates_also_a_metric_that_is_only_recorded() -> None:
    run = measured({"step_ms": 10.0, "latency_ms": 13.0})
    budget = ResolvedBudget(limits={"ms": 12.0, "latency_ms": 12.0})

    assert verdicts(run, budget=budget) == [
        ("step_ms", Outcome.PASS, "10 ms against 12 ms"),
        (
            "latency_ms",
            Outcome.INCONCLUSIVE,
            "13 ms against 12 ms so far, cannot tell +-1.8 % after 1 of at most 5 runs",
        ),
    ]


def test_a_budget_and_a_baseline_give_a_verdict_each_the_budget_first() -> None:
    run = measured(exact={"syncs": 2})

    found = judge(
        "t",
        [run, run],
        ResolvedBudget(limits={"syncs": 5}),
        DEFAULT,
        stored(measured(exact={"syncs": 1})),
    )

    assert found == TestVerdict(
        test="t",
        verdicts=(
            Verdict(
                metric="syncs",
                outcome=Outcome.PASS,
                because="2 against 5",
                now=2,
                limit=5,
            ),
            Verdict(
                metric="syncs",
                outcome=Outcome.REGRESSED,
                because="2 against 1 stored, in each of 2 runs",
                now=2,
                baseline=1,
                limit=1,
            ),
        ),
        runs=2,
    )
    assert found.outcome is Outcome.REGRESSED


@pytest.mark.parametrize(
    ("then", "because"),
    [
        (64, "20 MiB against 10 MiB stored, in each of 2 runs"),
        (32, "84 MiB against 42 MiB stored, in each of 2 runs"),
        (None, "84 MiB against 74 MiB stored, in each of 2 runs"),
    ],
)
def test_memory_is_compared_without_what_cublas_keeps_now_as_then(
    then: int | None, because: str
) -> None:
    def peak(own: int, kept: int | None) -> Measurement:
        kept_bytes = {} if kept is None else {"workspace_bytes": kept * MIB}
        whole = (own + (64 if kept is None else kept)) * MIB
        return measured(exact={"peak_allocated_bytes": whole, **kept_bytes})

    entry = stored(peak(10, then))
    (found,) = judge(
        "t", [peak(20, 64)] * 2, NOTHING, DEFAULT, entry, STILL_NOW
    ).verdicts

    assert (found.outcome, found.because) == (Outcome.REGRESSED, because)
    assert found.now == 84 * MIB
    assert found.baseline == (10 + (64 if then is None else then)) * MIB
    assert (found.workspace_bytes, found.stored_workspace_bytes) == (
        64 * MIB,
        None if then is None else then * MIB,
    )


@pytest.mark.parametrize(
    ("drawn", "order"),
    [
        (
            "peak_allocated_bytes",
            ["step_ms", "syncs", "retained_graphs", "peak_allocated_bytes"],
        ),
        ("syncs", ["step_ms", "peak_allocated_bytes", "retained_graphs", "syncs"]),
        ("", ["step_ms", "syncs", "peak_allocated_bytes", "retained_graphs"]),
    ],
)
def test_waits_fail_before_memory_and_what_varies_last(
    drawn: str, order: list[str]
) -> None:
    exact = {"peak_allocated_bytes": 10 * MIB, "retained_graphs": 1, "syncs": 3}
    before = measured({"step_ms": 10.0}, dict.fromkeys(exact, 0))
    runs = [
        measured(
            {"step_ms": 100.0},
            {n: v + (n == drawn) * draw * MIB for n, v in exact.items()},
        )
        for draw in range(8)
    ]

    found = judge("t", runs, NOTHING, DEFAULT, stored(*[before] * 8), STILL_NOW)

    assert [v.metric for v in found.verdicts if v.outcome.fails] == order


def test_a_memory_budget_is_mib_and_holds_what_the_device_measures() -> None:
    on_cuda = measured(exact={"peak_allocated_bytes": 901 * MIB})
    predicted = measured(
        exact={"peak_allocated_bytes": 500 * MIB}, on=DeviceKind.SIMULATED
    )
    budget = ResolvedBudget(limits={"mem_mb": 900})

    assert verdicts(on_cuda, on_cuda, budget=budget) == [
        (
            "peak_allocated_bytes",
            Outcome.OVER_BUDGET,
            "901 MiB against 900 MiB in each of 2 runs",
        )
    ]
    assert verdicts(predicted, budget=budget) == [
        ("peak_allocated_bytes", Outcome.PASS, "500 MiB against 900 MiB")
    ]


def test_what_the_device_cannot_measure_is_not_checked_with_its_reason() -> None:
    run = measured(
        exact={"graph_breaks": 0},
        unmeasured={"peak_allocated_bytes": "it is a clock"},
        on=DeviceKind.CPU,
    )
    budget = ResolvedBudget(limits={"reserved_mb": 900, "mem_mb": 1})

    assert verdicts(run, budget=budget) == [
        ("peak_allocated_bytes", Outcome.NOT_CHECKED, "it is a clock"),
        (
            "peak_reserved_bytes",
            Outcome.NOT_CHECKED,
            "the cpu device does not measure reserved_mb",
        ),
    ]


def test_a_stored_metric_is_missed_once_with_its_reason() -> None:
    run = measured(
        unmeasured={
            "peak_allocated_bytes": "the dispatch mode was taken",
        },
        on=DeviceKind.SIMULATED,
    )
    predicted = {"peak_allocated_bytes": 5}
    entry = stored(measured(exact=predicted, on=DeviceKind.SIMULATED))

    assert verdicts(run, entry=entry) == [
        (
            "peak_allocated_bytes",
            Outcome.NOT_CHECKED,
            "the dispatch mode was taken",
        )
    ]
    run = replace(run, exact=predicted)

    assert [metric for metric, _, _ in verdicts(run)] == [*predicted]


def test_a_run_that_measured_nothing_says_why_of_each_gated_metric() -> None:
    why = "the step never touched the GPU"
    run = measured(unmeasured=dict.fromkeys(METRICS, why))

    found = verdicts(run)
    assert {tuple(said) for _, *said in found} == {(Outcome.NOT_CHECKED, why)}
    gated = [name for name, m in METRICS.items() if m.gated and m not in RANKED]
    assert [metric for metric, *_ in found] == gated


def test_what_this_run_missed_is_inconclusive_where_it_would_be_gated() -> None:
    run = measured(missed={"syncs": "the time cap was reached", "recompiles": "too"})

    assert verdicts(run) == [
        ("syncs", Outcome.INCONCLUSIVE, "the time cap was reached")
    ]


def test_a_metric_that_a_later_run_missed_is_judged_by_the_others() -> None:
    runs = [measured(exact={"syncs": 0}), measured(unmeasured={"syncs": "lost"})]

    assert verdicts(*runs, budget=ResolvedBudget(limits={"syncs": 0})) == [
        ("syncs", Outcome.PASS, "0 against 0")
    ]


def test_a_budget_for_other_hardware_is_not_checked_and_the_baseline_still_is() -> None:
    run = measured({"step_ms": 10.0})
    budget = ResolvedBudget(unbound={"ms": "ms=12 is meant for *A100*"})

    assert verdicts(run, budget=budget, entry=stored(*[run] * 5)) == [
        ("step_ms", Outcome.NOT_CHECKED, "ms=12 is meant for *A100*"),
        ("step_ms", Outcome.PASS, "10 ms, baseline 10 ms, +0.0 %"),
    ]
    assert verdicts(run, budget=budget) == [
        ("step_ms", Outcome.NOT_CHECKED, "ms=12 is meant for *A100*"),
        ("step_ms", Outcome.NO_BASELINE, "no baseline and no budget that binds here"),
    ]
    assert verdicts(measured(unmeasured={"step_ms": "no clock"}), budget=budget) == [
        ("step_ms", Outcome.NOT_CHECKED, "ms=12 is meant for *A100*")
    ]


def test_tolerance_and_detect_come_from_the_mark() -> None:
    entry = stored(*[measured({"step_ms": 10.0}, {"syncs": 10})] * 5)
    run = measured({"step_ms": 10.5}, {"syncs": 11})

    strict = judge("t", [run], NOTHING, DEFAULT, entry)
    wide = judge(
        "t",
        [run],
        NOTHING,
        Tolerance(ratios={"ms": 0.06, "syncs": 0.1}),
        entry,
        STILL_NOW,
    )
    alert = judge(
        "t", [run], NOTHING, Tolerance(ratios={"ms": 0.04}, detect=0.045), entry
    )

    assert [v.outcome for v in strict.verdicts] == [
        Outcome.INCONCLUSIVE,
        Outcome.REGRESSED,
    ]
    assert [v.outcome for v in wide.verdicts] == [Outcome.PASS, Outcome.PASS]
    assert [v.outcome for v in alert.verdicts] == [
        Outcome.INCONCLUSIVE,
        Outcome.REGRESSED,
    ]


@pytest.mark.parametrize("ms", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_number_that_is_no_time_never_passes(ms: float) -> None:
    run = measured({"step_ms": ms})
    budget = ResolvedBudget(limits={"ms": 12.0})

    assert verdicts(run, budget=budget, entry=stored(run)) == [
        ("step_ms", Outcome.INCONCLUSIVE, f"ms=12 was not checked: not a time: {ms}")
    ]
    assert verdicts(run, entry=stored(run)) == [
        ("step_ms", Outcome.INCONCLUSIVE, f"not a time: {ms}")
    ]


def test_a_negative_count_or_size_never_passes() -> None:
    run = measured(exact={"syncs": -1, "peak_allocated_bytes": -5})

    assert verdicts(run) == [
        ("peak_allocated_bytes", Outcome.INCONCLUSIVE, "not a size: -5"),
        ("syncs", Outcome.INCONCLUSIVE, "not a count: -1"),
    ]


def test_a_recorded_metric_is_not_checked_even_if_it_is_nonsense() -> None:
    assert verdicts(measured({"latency_ms": -1.0})) == []


def test_another_torch_is_blamed_for_counts_and_named_as_a_change() -> None:
    entry = stored(measured(exact={"syncs": 1}), software={"torch": "2.12.0"})

    found = judge("t", [measured(exact={"syncs": 2})], NOTHING, DEFAULT, entry)

    assert found.changed == {"torch": ("2.12.0", "2.13.0")}
    assert [(v.outcome, v.because) for v in found.verdicts] == [
        (Outcome.INCONCLUSIVE, "environment changed: torch 2.12.0 -> 2.13.0")
    ]


def test_a_torch_that_only_one_side_knows_excuses_nothing() -> None:
    entry = an_entry(None, exact={"syncs": 1}, software={"driver": "570.1"})

    found = judge("t", [measured(exact={"syncs": 2})], NOTHING, DEFAULT, entry)

    assert found.changed == {
        "driver": ("570.1", "not recorded"),
        "torch": ("not recorded", "2.13.0"),
    }
    assert found.outcome is Outcome.REGRESSED


def test_the_findings_are_those_of_the_last_run() -> None:
    finding = a_finding(blocked_ms=0.1, location=None)
    old = a_measurement(None)
    new = a_measurement(None, findings=(finding,))

    assert judge("t", [old, new], NOTHING, DEFAULT, None).findings == (finding,)
    assert judge("t", [new, old], NOTHING, DEFAULT, None).findings == ()


GOOD_TO_BAD = [
    Outcome.IMPROVED,
    Outcome.PASS,
    Outcome.INCONCLUSIVE,
    Outcome.OVER_BUDGET,
    Outcome.REGRESSED,
]

step_times = st.lists(st.floats(min_value=8.0, max_value=13.0), min_size=1, max_size=6)


@given(step_times, step_times, st.data())
def test_slowing_any_run_never_improves_the_outcome_of_the_test(
    before: list[float], fresh: list[float], data: st.DataObject
) -> None:
    entry = stored(*(measured({"step_ms": ms}) for ms in before))
    budget = ResolvedBudget(limits={"ms": 11.0})
    factor = st.floats(min_value=1.0, max_value=2.0)
    slowed = [ms * data.draw(factor) for ms in fresh]

    as_it_was, slower = (
        judge("t", [measured({"step_ms": ms}) for ms in run], budget, DEFAULT, entry)
        for run in (fresh, slowed)
    )

    for old, new in zip(as_it_was.verdicts, slower.verdicts, strict=True):
        assert GOOD_TO_BAD.index(new.outcome) >= GOOD_TO_BAD.index(old.outcome)


EXACT_LIMITS = [
    (keyword, metric.name)
    for keyword in BUDGET_KEYWORDS
    for metric in limited_by(keyword)
    if metric.kind is MetricKind.EXACT
]


@pytest.mark.parametrize(("keyword", "name"), EXACT_LIMITS)
def test_each_limit_of_a_count_or_size_fails_what_is_above_it_in_two_runs(
    keyword: str, name: str
) -> None:
    limit = ResolvedBudget(limits={keyword: 2})
    over = measured(exact={name: 300 * MIB})
    within = measured(exact={name: 2})

    assert [v[:2] for v in verdicts(over, over, budget=limit) if v[0] == name] == [
        (name, Outcome.OVER_BUDGET)
    ]
    assert [v[:2] for v in verdicts(within, within, budget=limit) if v[0] == name] == [
        (name, Outcome.PASS)
    ]


def test_ranks_that_are_further_apart_than_allowed_fail() -> None:
    limit = ResolvedBudget(limits={"skew_pct": 5})
    apart, level = measured({"rank_skew": 1.2}), measured({"rank_skew": 1.01})

    assert [v[:2] for v in verdicts(apart, apart, budget=limit)][-1] == (
        "rank_skew",
        Outcome.OVER_BUDGET,
    )
    assert [v[:2] for v in verdicts(level, budget=limit)][-1] == (
        "rank_skew",
        Outcome.PASS,
    )
