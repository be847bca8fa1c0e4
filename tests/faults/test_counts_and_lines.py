"""Counts and bytes that must be blamed or forgiven, and lines that are new or only moved."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    SIMULATED,
    a_finding,
    a_location,
    a_measurement,
    an_entry,
    baselines,
)

from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.baselines.refresh import new_entry
from pytest_gpuperf.errors import BaselineError
from pytest_gpuperf.judge.budget import ResolvedBudget
from pytest_gpuperf.judge.exact import compared
from pytest_gpuperf.judge.verdict import judge
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.finding import (
    CALLED,
    MOST_LINES_OF_FINDING,
    Finding,
    FindingKind,
    Location,
    StoredLine,
    stored_lines,
)
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import MIB
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.document import terminal
from pytest_gpuperf.report.screen.findings import finding_blocks


PEAK = "peak_allocated_bytes"
WORKSPACES = "workspace_bytes"
TWO_WORKSPACES = 64 * MIB


def run(least: dict[str, int] | None = None, **exact: int) -> Measurement:
    return a_measurement(None, on=SIMULATED, exact=exact, least=least or {})


def outcomes(entry: Entry | None, *runs: Measurement) -> dict[str, Outcome]:
    verdict = judge("t", runs, ResolvedBudget(), Tolerance(), entry)
    return {v.metric: v.outcome for v in verdict.verdicts}


@pytest.mark.parametrize("metric", ["flops", "retained_graphs", "launches"])
@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        pytest.param(100, 100, Outcome.PASS, id="the same"),
        pytest.param(100, 102, Outcome.REGRESSED, id="two more"),
        pytest.param(100, 20_000, Outcome.REGRESSED, id="a quadratic loop"),
        pytest.param(100, 50, Outcome.IMPROVED, id="half"),
    ],
)
def test_a_count_is_judged_by_its_baseline(
    metric: str, before: int, now: int, outcome: Outcome
) -> None:
    entry = an_entry(*[run(**{metric: before})] * 2)

    assert outcomes(entry, *[run(**{metric: now})] * 2) == {metric: outcome}


@pytest.mark.parametrize("metric", ["launches", "flops", "retained_graphs"])
def test_a_baseline_from_before_a_count_was_gated_fails_nothing(metric: str) -> None:
    entry = an_entry(run(syncs=1))

    found = outcomes(entry, run(syncs=1, **{metric: 5}))

    assert found == {"syncs": Outcome.PASS, metric: Outcome.NO_BASELINE}
    verdict = judge(
        "t", [run(syncs=1, **{metric: 5})], ResolvedBudget(), Tolerance(), entry
    )
    assert verdict.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        pytest.param((80, 100), (85, 120), Outcome.PASS, id="dropped at random"),
        pytest.param((100, 100), (99, 130), Outcome.PASS, id="only in some steps"),
        pytest.param((80, 100), (101, 140), Outcome.REGRESSED, id="in every step"),
        pytest.param((80, 100), (150, 150), Outcome.REGRESSED, id="at random no more"),
    ],
)
def test_a_step_s_own_chance_blames_nobody(
    before: tuple[int, int], now: tuple[int, int], outcome: Outcome
) -> None:
    then = run(least={"launches": before[0]}, launches=before[1])
    fresh = run(least={"launches": now[0]}, launches=now[1])

    assert outcomes(an_entry(then, then), fresh, fresh) == {"launches": outcome}


@pytest.mark.parametrize(
    ("more_bytes", "outcome"),
    [
        pytest.param(1024, Outcome.PASS, id="two scalars"),
        pytest.param(16 * 2**10, Outcome.PASS, id="16 KiB of 4 MiB"),
        pytest.param(100 * 2**10, Outcome.REGRESSED, id="100 KiB next to workspaces"),
        pytest.param(330 * 2**10, Outcome.REGRESSED, id="half a percent of all"),
        pytest.param(-100 * 2**10, Outcome.IMPROVED, id="100 KiB less"),
    ],
)
def test_no_tolerance_is_taken_of_workspaces(more_bytes: int, outcome: Outcome) -> None:
    size = TWO_WORKSPACES + 4 * MIB
    before = run(**{PEAK: size, WORKSPACES: TWO_WORKSPACES})
    after = run(**{PEAK: size + more_bytes, WORKSPACES: TWO_WORKSPACES})

    assert outcomes(an_entry(before, before), after, after) == {PEAK: outcome}


def test_a_baseline_that_does_not_know_of_workspaces_is_judged_as_one_that_does() -> (
    None
):
    size = TWO_WORKSPACES + 4 * MIB
    after = run(**{PEAK: size + 100 * 2**10, WORKSPACES: TWO_WORKSPACES})

    found = outcomes(an_entry(run(**{PEAK: size})), after, after)

    assert found == {PEAK: Outcome.REGRESSED}


@pytest.mark.parametrize(
    ("left", "outcome"),
    [
        pytest.param(4, Outcome.PASS, id="a scalar"),
        pytest.param(512, Outcome.PASS, id="a block of a scalar"),
        pytest.param(3 * 512, Outcome.PASS, id="three scalars"),
        pytest.param(8 * 2**10, Outcome.REGRESSED, id="8 KiB"),
    ],
)
def test_a_list_of_scalars_is_no_leak(left: int, outcome: Outcome) -> None:
    entry = an_entry(*[run(growth_bytes=0)] * 2)

    assert outcomes(entry, *[run(growth_bytes=left)] * 2) == {"growth_bytes": outcome}


# Lines


ITEM = a_finding(
    op="aten::_local_scalar_dense",
    location=a_location(21, "train.py", "step"),
    source="loss.item()",
)


def at(finding: Finding, line: int, **where: str) -> Finding:
    assert finding.location is not None
    return replace(finding, location=replace(finding.location, line=line, **where))


def work(count: int, text: str, op: str | None = None, line: int = 5) -> Finding:
    location = Location(file="train.py", line=line, function="forward")
    return replace(
        ITEM,
        kind=FindingKind.WORK,
        op=op,
        per_step=count,
        location=location,
        source=text,
        metrics=("launches", "flops"),
    )


@pytest.mark.parametrize(
    ("now", "is_new"),
    [
        pytest.param(ITEM, False, id="where it was"),
        pytest.param(at(ITEM, 99), False, id="further down"),
        pytest.param(at(ITEM, 3, file="lib/train.py"), False, id="in another file"),
        pytest.param(replace(ITEM, reason="other words"), False, id="said otherwise"),
        pytest.param(at(ITEM, 21, function="log"), True, id="in another function"),
        pytest.param(replace(ITEM, source="acc.item()"), True, id="another line"),
        pytest.param(replace(ITEM, op="aten::nonzero"), True, id="another operation"),
        pytest.param(replace(ITEM, kind=FindingKind.COPY), True, id="another kind"),
        pytest.param(
            replace(ITEM, metrics=("pageable_copies",)), True, id="memory unpinned"
        ),
    ],
)
def test_a_line_is_known_by_its_text_and_its_function(
    now: Finding, *, is_new: bool
) -> None:
    (found,) = compared([now], stored_lines([ITEM]))

    assert found.is_new is is_new


def test_a_line_that_waits_more_often_has_risen() -> None:
    (found,) = compared([replace(ITEM, per_step=3)], stored_lines([ITEM]))

    assert (found.stored, found.has_risen, found.is_new) == (1, True, False)


def test_without_stored_lines_nothing_is_called_new() -> None:
    (found,) = compared([ITEM, work(9, "y = f(x)")], None)

    assert (found.stored, found.is_new, found.has_risen) == (None, False, False)


def test_what_is_allowed_is_neither_stored_nor_called_new() -> None:
    allowed = replace(ITEM, metrics=(), allowed="it is logged")

    assert stored_lines([allowed]) == ()
    assert compared([allowed], ()) == (allowed,)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        pytest.param(work(9, "y = f(x)"), [], id="as many operations"),
        pytest.param(work(8, "y = f(x)"), [], id="fewer"),
        pytest.param(work(10, "y = f(x)"), [9], id="one more"),
        pytest.param(work(1, "z = g(x)"), [0], id="a new line"),
        pytest.param(work(30, "self.net(x)", op=CALLED), [0], id="a new call"),
    ],
)
def test_a_line_that_runs_operations_is_named_where_it_runs_more(
    now: Finding, said: list[int]
) -> None:
    found = compared([now], stored_lines([work(9, "y = f(x)")]))

    assert [finding.stored for finding in found] == said


def test_a_call_is_not_blamed_for_more_operations_inside_of_it() -> None:
    before = stored_lines([work(9, "self.net(x)", op=CALLED)])

    assert compared([work(12, "self.net(x)", op=CALLED)], before) == ()


def test_a_line_that_may_have_been_left_out_is_not_called_new() -> None:
    many = [
        work(100 - n, f"y = f{n}(x)", line=n) for n in range(MOST_LINES_OF_FINDING + 10)
    ]
    kept = stored_lines(many)

    assert len(kept) == MOST_LINES_OF_FINDING
    assert compared(many, kept) == ()
    assert [f.stored for f in compared([work(5000, "loop(x)")], kept)] == [0]


def test_a_call_that_may_have_been_left_out_is_not_called_new() -> None:
    kept = stored_lines([work(60 - n, f"f{n}(x)", op=CALLED) for n in range(30)])

    assert compared([work(99, "f29(x)", op=CALLED)], kept) == ()


def test_of_a_kind_that_was_left_out_altogether_nothing_is_called_new() -> None:
    waits = [replace(ITEM, source=f"x{n}.item()") for n in range(MOST_LINES_OF_FINDING)]
    kept = stored_lines([*waits, work(9, "y = f(x)"), work(9, "g(x)", op=CALLED)])

    assert {line.kind for line in kept} == {"sync"}
    assert compared([work(9, "y = f(x)"), work(9, "g(x)", op=CALLED)], kept) == ()


def test_waits_are_kept_before_lines_that_only_run_operations() -> None:
    many = [
        work(1000, f"y = f{n}(x)", line=n) for n in range(MOST_LINES_OF_FINDING + 10)
    ]

    assert stored_lines([*many, ITEM])[0].kind == "sync"


OLD_SYNC = replace(at(ITEM, 5), source="scaler.step(optimizer)", per_step=4)


def said(findings: list[Finding], failing: set[str]) -> list[str]:
    found = compared(findings, stored_lines([OLD_SYNC]))
    return list(terminal(finding_blocks(found, failing, 20)))


NEW_SYNC = [
    "  --> train.py:21 in step",
    "   21 | loss.item()",
    "      |     ^^^^^^^ new: the CPU waits here for the GPU",
    "  fix      add it up on the GPU with .detach(), read it every N steps",
]


def test_the_new_wait_stands_first_and_the_old_one_is_counted() -> None:
    assert said([OLD_SYNC, ITEM], {"syncs"}) == [*NEW_SYNC, "           and 1 older"]


def test_a_slower_step_is_not_put_down_to_a_wait_that_the_baseline_has() -> None:
    assert said([OLD_SYNC], {"step_ms"}) == []
    assert said([OLD_SYNC, ITEM], {"step_ms"}) == NEW_SYNC


@pytest.mark.parametrize(
    "metric", ["growth_bytes", "retained_graphs", "launches", PEAK]
)
def test_no_wait_is_named_for_what_waits_do_not_cause(metric: str) -> None:
    assert said([OLD_SYNC, ITEM], {metric}) == []


# The file


def document() -> dict[str, Any]:
    measured = replace(run(syncs=1), findings=(ITEM,))
    entries = {"t": new_entry([measured, measured])}
    text = dumps(baselines(SIMULATED, **entries))
    raw: dict[str, Any] = json.loads(text)
    return raw


def test_lines_are_read_back_as_they_were_written() -> None:
    (entry,) = loads(json.dumps(document()), "it").entries.values()

    assert entry.lines == stored_lines([ITEM])


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param("train.py:21", id="a text"),
        pytest.param({}, id="an object"),
        pytest.param(["train.py:21"], id="lines that are texts"),
        pytest.param([{"kind": "sync"}], id="a line without a count"),
        pytest.param([None], id="nothing"),
    ],
)
def test_lines_of_another_shape_are_refused_by_place(lines: object) -> None:
    raw = document()
    raw["tests"]["t"]["lines"] = lines

    with pytest.raises(BaselineError, match=r"tests\.t\.lines"):
        loads(json.dumps(raw), "it")


def test_a_count_below_0_of_a_line_is_refused() -> None:
    raw = document()
    (key,) = (key for key in raw["tests"]["t"] if key.startswith("line "))
    raw["tests"]["t"][key] = {"sync syncs": -1}

    with pytest.raises(BaselineError, match="GP502"):
        loads(json.dumps(raw), "it")


def test_a_line_is_stored_without_its_number() -> None:
    (line,) = stored_lines([ITEM])

    assert line == StoredLine(
        kind="sync",
        op="aten::_local_scalar_dense",
        file="train.py",
        function="step",
        text="loss.item()",
        metrics=("syncs",),
        per_step=1,
    )
