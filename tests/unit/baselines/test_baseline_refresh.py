"""What a refresh takes over, and the table of what that changes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from builders import (
    H200,
    a_finding,
    a_measurement,
    a_run,
    a_test,
    a_verdict,
    an_entry,
    baselines,
)

from pytest_gpuperf.baselines.acceptance import with_evidence_of
from pytest_gpuperf.baselines.drift import Leeway
from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.baselines.refresh import (
    changes,
    new_entry,
    selects,
    typical_values,
    with_evidence,
)
from pytest_gpuperf.errors import BaselineError
from pytest_gpuperf.model.baseline import (
    MOST_RUNS,
    BaselineChange,
    Entry,
    Judged,
    Refresh,
    RunSummary,
    StepSummary,
    by_session,
    session_id,
    spread_over_sessions,
)
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.verdict import Outcome, TestVerdict


def measured(
    ms: float | None = None, syncs: int | None = None, *dirty: str
) -> Measurement:
    exact = {} if syncs is None else {"syncs": syncs}
    return a_measurement(ms, *dirty, exact=exact)


def judged(**outcomes: Outcome) -> TestVerdict:
    return a_test(*(a_verdict(metric, said) for metric, said in outcomes.items()))


PASSED = judged(step_ms=Outcome.PASS, syncs=Outcome.PASS)
NOTHING = replace(measured(10.0, 0), times={}, exact={})
ENTRY = an_entry(measured(10.0, 0), measured(10.2, 0), measured(9.8, 0))


def selected(verdict: TestVerdict, entry: Entry | None, *runs: Measurement) -> set[str]:
    replacing = [kind for kind in Refresh if kind is not Refresh.EVIDENCE]
    return {kind.value for kind in replacing if selects(kind, verdict, entry, runs)}


PASS, NO_BASELINE = Outcome.PASS, Outcome.NO_BASELINE
NOT_CHECKED, IMPROVED = Outcome.NOT_CHECKED, Outcome.IMPROVED
TIMED = an_entry(measured(10.0))


@pytest.mark.parametrize(
    ("outcomes", "entry", "fresh", "kinds"),
    [
        ((PASS, PASS), ENTRY, measured(10.0, 0), {"all"}),
        ((PASS, PASS), None, NOTHING, set()),
        ((NO_BASELINE, None), None, measured(10.0), {"missing", "all"}),
        ((PASS, NO_BASELINE), TIMED, measured(10.0, 0), {"missing", "all"}),
        ((PASS, NOT_CHECKED), ENTRY, measured(10.0), {"all"}),
        ((IMPROVED, PASS), ENTRY, measured(9.0, 0), {"improved", "all"}),
        ((None, PASS), TIMED, measured(syncs=0), {"missing", "all"}),
        ((Outcome.REGRESSED, IMPROVED), TIMED, measured(12.0, 1), {"all"}),
    ],
    ids=[
        "unchanged",
        "nothing measured",
        "no entry",
        "a gated metric that was not stored",
        "a stored metric that is not measured now",
        "improved",
        "within its budget, and never stored",
        "what regressed is only taken by all",
    ],
)
def test_each_kind_of_refresh_takes_its_own_tests(
    outcomes: tuple[Outcome | None, Outcome | None],
    entry: Entry | None,
    fresh: Measurement,
    kinds: set[str],
) -> None:
    named = zip(("step_ms", "syncs"), outcomes, strict=True)
    verdict = judged(**{metric: said for metric, said in named if said})

    assert selected(verdict, entry, fresh) == kinds


def test_an_entry_sums_up_what_a_step_was_spent_on_and_its_memory() -> None:
    peak = a_finding(
        FindingKind.PEAK,
        op="aten::mm",
        held_for=(("activations", 60), ("parameters", 30)),
        location=None,
    )
    shown = replace(measured(10.0), findings=(peak,))

    entry = new_entry([measured(10.0), shown])
    text = dumps(baselines(H200, t=entry))

    assert entry.step == StepSummary(peak_bytes={"activations": 60, "parameters": 30})
    assert loads(text, "it").entries["t"].step == entry.step
    assert new_entry([measured(10.0)]).step is None


def test_what_a_step_was_spent_on_is_read_and_dropped() -> None:
    text = dumps(baselines(H200, t=new_entry([measured(10.0)])))
    raw = json.loads(text)
    raw["tests"]["t"]["step"] = {"spent_pct": {"gpu": 9}, "peak_bytes": {"inputs": 8}}

    step = loads(json.dumps(raw), "it").entries["t"].step

    assert step == StepSummary(peak_bytes={"inputs": 8})


@pytest.mark.parametrize("step", [[], {"spent": {}}, {"spent_pct": {"gpu": -1}}])
def test_a_summary_of_another_shape_is_refused_by_place(step: object) -> None:
    text = dumps(baselines(H200, t=new_entry([measured(10.0)])))
    raw = json.loads(text)
    raw["tests"]["t"]["step"] = step

    with pytest.raises(BaselineError, match=r"tests\.t\.step"):
        loads(json.dumps(raw), "it")


def test_a_test_that_was_not_measured_is_never_taken() -> None:
    assert selected(PASSED, ENTRY) == set()
    assert selected(PASSED, None) == set()


def test_the_fresh_runs_replace_the_stored_ones() -> None:
    entry = new_entry([measured(11.0, 1), measured(13.0, 2), measured(12.0, 0)])

    assert entry == Entry(
        runs=(
            RunSummary.of(measured(11.0, 1)),
            RunSummary.of(measured(13.0, 2)),
            RunSummary.of(measured(12.0, 0)),
        ),
        software={"torch": "2.13.0"},
        lines=(),
    )


def test_typical_are_where_the_runs_lie_and_the_largest_count_of_what_is_gated() -> (
    None
):
    runs = [measured(10.0001, 0), measured(12.5, 2), measured(8.0, 1)]
    recorded = a_run({"latency_ms": 5.0})
    entry = an_entry(*runs)

    values = typical_values(an_entry(*entry.runs, recorded), DeviceKind.CUDA)

    assert values == {"step_ms": 10.0, "syncs": 2}


def test_only_the_newest_runs_are_kept() -> None:
    runs = [measured(float(ms)) for ms in range(1, MOST_RUNS + 3)]

    entry = new_entry(runs)

    assert entry.runs == tuple(RunSummary.of(run) for run in runs[2:])


def test_disturbed_runs_are_left_out_where_five_others_remain() -> None:
    clean = [measured(float(ms)) for ms in range(1, 6)]
    dirty = measured(99.0, None, "hot")

    enough = new_entry([dirty, *clean])
    too_few = new_entry([dirty, *clean[1:]])

    assert enough.runs == tuple(RunSummary.of(run) for run in clean)
    assert too_few.runs == tuple(RunSummary.of(run) for run in [dirty, *clean[1:]])


def test_changes_are_typical_values_before_and_after() -> None:
    old = baselines(
        H200,
        gone=an_entry(measured(syncs=1)),
        same=an_entry(measured(10.0, 0)),
        slower=an_entry(measured(10.0, 0), measured(11.0, 1), measured(12.1, 0)),
    )
    new = baselines(
        H200,
        same=an_entry(measured(10.001, 0)),
        slower=an_entry(measured(13.0, 1)),
        added=an_entry(measured(5.0)),
    )

    assert changes(old, new) == (
        BaselineChange(test="added", metric="step_ms", old=None, new=5.0),
        BaselineChange(test="gone", metric="syncs", old=1, new=None),
        BaselineChange(
            test="slower", metric="step_ms", old=11.0, new=13.0, anchor=13.0
        ),
    )


def test_a_change_knows_the_anchor_that_its_drift_is_counted_from() -> None:
    old = an_entry(*an_entry(measured(10.0, 0)).runs, anchor={"step_ms": 9.0})
    moved = an_entry(measured(9.5, 0))
    kept = replace(moved, anchor=old.anchor)

    found = [
        changes(baselines(H200, **before), baselines(H200, t=after))[0].anchor
        for before, after in [({"t": old}, moved), ({"t": old}, kept), ({}, kept)]
    ]

    assert found == [9.5, 9.0, None]


# Sessions


EARLY, SOON, LATE = (
    session_id(datetime(2026, 1, 31, 9, minute, tzinfo=timezone.utc), token)
    for minute, token in [(0, "aaaa"), (29, "bbbb"), (59, "cccc")]
)


def test_a_session_is_named_in_utc() -> None:
    eastern = timezone(timedelta(hours=-5))

    found = session_id(datetime(2026, 1, 31, 22, 5, tzinfo=eastern), "4f2a")

    assert found == "2026-02-01T03:05Z-4f2a"


def test_sessions_that_began_within_half_an_hour_count_as_one() -> None:
    runs = of_sessions(EARLY, "", SOON, LATE, EARLY, "")

    groups = [[run.exact["syncs"] for run in group] for group in by_session(runs)]

    assert groups == [[0, 2, 4], [1, 5], [3]]


def test_runs_of_which_no_session_is_known_are_of_one() -> None:
    assert len(by_session(of_sessions("", "", ""))) == 1


@pytest.mark.parametrize(
    ("sessions", "most", "kept"),
    [
        ([EARLY] * 3 + [LATE], 4, [0, 1, 2, 3]),
        ([EARLY] * 3 + [LATE], 2, [2, 3]),
        ([""] * 4 + [EARLY] * 2 + [LATE], 4, [3, 4, 5, 6]),
        (["", EARLY, LATE], 2, [1, 2]),
    ],
    ids=["all fit", "crowded", "two crowded", "the oldest where none is"],
)
def test_old_sessions_are_not_crowded_out(
    sessions: list[str], most: int, kept: list[int]
) -> None:
    left = spread_over_sessions(of_sessions(*sessions), most)

    assert [run.exact["syncs"] for run in left] == kept


def test_the_runs_of_a_refresh_with_times_know_their_session() -> None:
    timed = new_entry([measured(11.0, 1)], EARLY)
    counted = new_entry([replace(measured(11.0, 1), times={})], EARLY)

    assert [timed.runs[0].session, counted.runs[0].session] == [EARLY, ""]


# Evidence


def of_sessions(*sessions: str) -> list[RunSummary]:
    return [a_run(None, exact={"syncs": n}, session=o) for n, o in enumerate(sessions)]


def session_entry(*ms: float, session: str = LATE, **judged_as: Any) -> Entry:
    judged = Judged(**judged_as)
    return an_entry(*ms, exact={"syncs": 0}, session=session, judged=judged)


STORED = replace(
    session_entry(*[10.0] * 8, session=EARLY),
    anchor={"step_ms": 9.9},
    judged=None,
)


def test_evidence_adds_runs_and_leaves_all_else() -> None:
    fresh = session_entry(10.1, 10.2)

    made = with_evidence(STORED, fresh)

    assert made == replace(STORED, runs=(*STORED.runs, *fresh.runs))


def test_evidence_keeps_as_many_runs_as_are_stored_of_every_session() -> None:
    made = STORED
    for day in range(1, 13):
        session = f"2026-02-{day:02}T09:00Z-0000"
        found = with_evidence(made, session_entry(*[10.1] * 5, session=session))
        assert found is not None
        made = found

    assert len(made.runs) == MOST_RUNS
    assert sorted(map(len, by_session(made.runs))) == [1] * 6 + [2] * 7


def test_evidence_does_not_change_a_count() -> None:
    fresh = session_entry(10.1)
    counted = replace(fresh, runs=(replace(fresh.runs[0], exact={"syncs": 7}),))

    made = with_evidence(STORED, counted)

    assert made is not None
    assert typical_values(made, DeviceKind.CUDA)["syncs"] == 0


@pytest.mark.parametrize(
    "fresh",
    [
        session_entry(10.1, outcomes={"step_ms": (Outcome.REGRESSED,)}),
        session_entry(10.1, outcomes={"step_ms": (Outcome.IMPROVED,)}),
        session_entry(10.1, disturbed=True),
        session_entry(10.1, session=EARLY),
        replace(session_entry(10.1), software={"torch": "2.14.0"}),
        replace(session_entry(10.1), runs=(a_run(None, exact={"syncs": 0}),)),
        replace(
            session_entry(10.1),
            runs=(replace(session_entry(10.1).runs[0], round_steps=7),),
        ),
    ],
    ids=[
        "regressed",
        "improved",
        "disturbed",
        "stored already",
        "another torch",
        "no times",
        "rounds of other numbers of steps",
    ],
)
def test_what_is_not_of_the_stored_code_is_no_evidence(fresh: Entry) -> None:
    assert with_evidence(STORED, fresh) is None


@pytest.mark.parametrize(
    ("ms", "is_added"), [(9.0, True), (10.2, True), (10.38, True), (10.45, False)]
)
def test_evidence_that_strays_far_from_the_anchor_is_refused(
    ms: float, *, is_added: bool
) -> None:
    """3 % and what two sessions differ by, 2 %, above 9.9 ms."""
    fresh = session_entry(*[ms] * 5)
    measured_ones = [("t", fresh, Leeway(kind=DeviceKind.CUDA, tolerance=Tolerance()))]

    plan = with_evidence_of({"t": STORED}, measured_ones, accept_drift=False)
    insisted = with_evidence_of({"t": STORED}, measured_ones, accept_drift=True)

    assert [drift.metric for drift in plan.drifts] == ([] if is_added else ["step_ms"])
    assert (plan.entries.keys() == {"t"}) is is_added
    assert insisted.entries["t"].anchor == STORED.anchor


def test_a_gate_selects_as_evidence_what_did_not_change() -> None:
    outcomes = [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.REGRESSED, Outcome.IMPROVED]

    found = [
        selects(Refresh.EVIDENCE, judged(step_ms=outcome), STORED, [measured(10.0, 0)])
        for outcome in outcomes
    ]

    assert found == [True, True, False, False]
