"""Counts and bytes against stored ones."""

from __future__ import annotations

from typing import Any

import pytest
from builders import a_measurement
from hypothesis import given, strategies as st

from pytest_gpuperf.judge.exact import BY_CHANCE, judge_exact
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import MIB, PEAK_ALLOCATED, SYNCS, Metric
from pytest_gpuperf.model.verdict import Outcome, Verdict


PASS, IMPROVED = Outcome.PASS, Outcome.IMPROVED
INCONCLUSIVE, REGRESSED = Outcome.INCONCLUSIVE, Outcome.REGRESSED
GOOD_TO_BAD = [IMPROVED, PASS, INCONCLUSIVE, REGRESSED]
VARIES = "it varies from run to run: "
TOO_FEW = "now; 2 stored runs do not tell, a refresh takes 8"
RANGE = f"{VARIES}2 to 4 stored, "


def counted(metric: Metric, *values: int) -> list[Measurement]:
    return [a_measurement(None, exact={metric.name: value}) for value in values]


@pytest.mark.parametrize(
    ("stored", "fresh", "outcome", "settled", "now", "because"),
    [
        ([2, 2], [2], PASS, True, 2, "2 against 2 stored"),
        ([1, 3], [3], PASS, True, 3, f"{VARIES}1 to 3 stored, 3 now"),
        ([1, 3], [1, 2], PASS, True, 2, f"{VARIES}1 to 3 stored, 1 to 2 now"),
        ([2, 2], [3], REGRESSED, False, 3, "3 against 2 stored, in 1 run"),
        ([0, 0], [1, 1], REGRESSED, True, 1, "1 against 0 stored, in each of 2 runs"),
        ([0, 0], [1, 0], INCONCLUSIVE, True, 0, "1 in one run, 0 in another"),
        ([2, 2], [1], IMPROVED, False, 1, "1 against 2 stored, in 1 run"),
        ([2, 4], [0, 1], PASS, True, 1, f"{RANGE}0 to 1 {TOO_FEW}"),
        ([2, 4], [5, 6], INCONCLUSIVE, True, 5, f"{RANGE}5 to 6 {TOO_FEW}"),
    ],
)
def test_any_change_of_a_count_is_a_verdict(
    *,
    stored: list[float],
    fresh: list[int],
    outcome: Outcome,
    settled: bool,
    now: int,
    because: str,
) -> None:
    verdict = judge_exact(SYNCS, counted(SYNCS, *fresh), stored, tolerance=0.0)

    assert verdict == Verdict(
        metric="syncs",
        outcome=outcome,
        because=because,
        now=now,
        baseline=stored[-1],
        limit=stored[-1],
        settled=settled,
    )


@pytest.mark.parametrize(("fresh", "settled"), [([2, 1], False), ([2, 1] * 4, True)])
def test_what_begins_to_vary_is_blamed_after_eight_runs_as_well(
    *, fresh: list[int], settled: bool
) -> None:
    verdict = judge_exact(SYNCS, counted(SYNCS, *fresh), [0, 0], tolerance=0.0)

    assert verdict.because == (
        f"it varies from run to run: 0 stored, 1 to 2 now, in each of {len(fresh)} "
        f"runs{OWN}"
    )
    assert (verdict.outcome, verdict.settled) == (REGRESSED, settled)
    assert verdict.proving is not settled


@pytest.mark.parametrize(
    ("stored_mib", "outcome"), [((100, 100.5), REGRESSED), ((100, 102), INCONCLUSIVE)]
)
def test_two_stored_runs_tell_where_they_vary_by_less_than_is_ignored(
    stored_mib: tuple[float, float], outcome: Outcome
) -> None:
    stored = [round(mib * MIB) for mib in stored_mib]

    verdict = judge_exact(
        PEAK_ALLOCATED,
        counted(PEAK_ALLOCATED, *[120 * MIB] * 8),
        stored,
        tolerance=0.005,
    )

    assert (verdict.outcome, verdict.settled) == (outcome, True)


EIGHT = [2, 2, 3, 3, 3, 4, 4, 4]
OWN = ", each with random numbers of its own"


@pytest.mark.parametrize(
    ("fresh", "outcome", "settled", "now", "because"),
    [
        ([5], REGRESSED, False, 5, "5 now, in 1 run"),
        ([5] * 7, REGRESSED, False, 5, "5 now, in each of 7 runs"),
        ([6, 5, 9, 5, 5, 5, 5, 5], REGRESSED, True, 5, "5 to 9 now, in each of 8 runs"),
        ([9] * 7 + [4], PASS, True, 9, "4 to 9 now"),
        ([1], IMPROVED, False, 1, "1 now, in 1 run"),
        ([0, 1] * 4, IMPROVED, True, 1, "0 to 1 now, in each of 8 runs"),
        ([0] * 7 + [2], PASS, True, 2, "0 to 2 now"),
    ],
)
def test_what_varies_is_judged_by_its_range_and_blamed_if_all_of_eight_runs_lie_beyond(
    *, fresh: list[int], outcome: Outcome, settled: bool, now: int, because: str
) -> None:
    verdict = judge_exact(SYNCS, counted(SYNCS, *fresh), EIGHT, tolerance=0.0)

    beyond = outcome is not PASS
    assert (verdict.outcome, verdict.settled) == (outcome, settled)
    assert (verdict.now, verdict.baseline, verdict.limit) == (now, 4, 4)
    assert verdict.because == f"{RANGE}{because}{OWN if beyond else ''}"
    # A gate makes the other runs; nothing is made to prove what became better.
    assert verdict.proving is (outcome is REGRESSED and not settled)


@pytest.mark.parametrize(
    ("stored_mib", "fresh_mib", "outcome"),
    [
        (100, 101, PASS),  # 1 %, but not more than the floor of 1 MiB
        (100, 102, REGRESSED),
        (100, 99, PASS),
        (100, 98, IMPROVED),
        (1000, 1005, PASS),  # 5 MiB, but not more than 0.5 %
        (1000, 1006, REGRESSED),
        (1000, 995, PASS),
        (1000, 994, IMPROVED),
    ],
)
def test_a_change_of_memory_exceeds_tolerance_and_floor(
    stored_mib: int, fresh_mib: int, outcome: Outcome
) -> None:
    runs = counted(PEAK_ALLOCATED, fresh_mib * MIB)

    verdict = judge_exact(PEAK_ALLOCATED, runs, [stored_mib * MIB], tolerance=0.005)

    assert verdict.outcome is outcome


def test_memory_is_shown_in_mib_with_the_limit_in_bytes() -> None:
    runs = counted(PEAK_ALLOCATED, 912 * MIB, 912 * MIB)

    verdict = judge_exact(PEAK_ALLOCATED, runs, [900 * MIB], tolerance=0.005)

    assert verdict.because == "912 MiB against 900 MiB stored, in each of 2 runs"
    assert verdict.limit == pytest.approx(904.5 * MIB)


def test_a_tolerance_lets_a_count_grow() -> None:
    runs = counted(SYNCS, 11)

    assert judge_exact(SYNCS, runs, [10], tolerance=0.1).outcome is PASS


def test_another_torch_is_named_instead_of_the_test() -> None:
    verdict = judge_exact(
        SYNCS, counted(SYNCS, 3), [2], tolerance=0.0, torch=("2.12.0", "2.13.0")
    )

    assert (verdict.outcome, verdict.settled) == (INCONCLUSIVE, True)
    assert verdict.because == "environment changed: torch 2.12.0 -> 2.13.0"


@pytest.mark.parametrize("fresh", [2, 1])
def test_another_torch_changes_nothing_else(fresh: int) -> None:
    runs = counted(SYNCS, fresh)

    same = judge_exact(SYNCS, runs, [2], tolerance=0.0)
    other = judge_exact(SYNCS, runs, [2], tolerance=0.0, torch=("2.12.0", "2.13.0"))

    assert same == other


counts = st.lists(st.integers(min_value=0, max_value=6), min_size=1, max_size=4)


@given(counts, counts, st.data())
def test_counting_more_never_improves_the_outcome(
    stored: list[int], fresh: list[int], data: st.DataObject
) -> None:
    more = [value + data.draw(st.integers(0, 3)) for value in fresh]
    ordered = sorted(stored)

    before = judge_exact(SYNCS, counted(SYNCS, *fresh), ordered, tolerance=0.0)
    after = judge_exact(SYNCS, counted(SYNCS, *more), ordered, tolerance=0.0)

    assert GOOD_TO_BAD.index(after.outcome) >= GOOD_TO_BAD.index(before.outcome)


@pytest.mark.parametrize(
    ("metric", "changes", "runs"),
    [
        (SYNCS, {"unseeded": "a.py:1 draws"}, 8),
        (PEAK_ALLOCATED, {"unseeded": "a.py:1 draws"}, 8),
        (PEAK_ALLOCATED, {"software": {"cudnn.benchmark": "True"}}, 8),
        (PEAK_ALLOCATED, {"software": {"cudnn.benchmark": "False"}}, 2),
        # Which plan is the fastest changes no count.
        (SYNCS, {"software": {"cudnn.benchmark": "True"}}, 2),
    ],
)
def test_a_choice_that_the_next_run_may_not_make_is_blamed_after_eight_runs(
    metric: Metric, changes: dict[str, Any], runs: int
) -> None:
    def judged(*values: int) -> Verdict:
        fresh = [
            a_measurement(None, exact={metric.name: value * MIB}, **changes)
            for value in values
        ]
        return judge_exact(metric, fresh, [MIB, MIB], tolerance=0.0)

    verdicts = [judged(*[9] * count) for count in range(1, 9)]

    assert {verdict.outcome for verdict in verdicts} == {REGRESSED}
    assert [verdict.settled for verdict in verdicts].index(True) == runs - 1
    assert (BY_CHANCE in verdicts[-1].because) is (runs == 8)
    assert judged(9, 9, 9, 1).outcome is INCONCLUSIVE
