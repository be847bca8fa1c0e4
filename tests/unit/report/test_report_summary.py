"""The table at the end, the last line, the table of a refresh: whole texts."""

from __future__ import annotations

import pytest
from builders import CPU, a_test, a_verdict

from pytest_gpuperf.model.baseline import BaselineChange
from pytest_gpuperf.model.metric import Direction, Metric, MetricKind, Unit
from pytest_gpuperf.model.metrics import METRICS
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict
from pytest_gpuperf.report.command import DEFAULT_INVOCATION
from pytest_gpuperf.report.screen.counts import counts_line, inconclusive_lines
from pytest_gpuperf.report.screen.summary import (
    Line,
    LineRole,
    refresh_lines,
    summary_lines,
)


ON = "on CPU AMD EPYC 2 cores"


def verdict(
    metric: str,
    outcome: Outcome,
    now: float | None = None,
    baseline: float | None = None,
    because: str = "",
) -> Verdict:
    return a_verdict(metric, outcome, now, baseline, because=because)


ELSEWHERE = (
    "latency_ms=15 binds on cuda only, this is cpu AMD EPYC 2 cores; name it with on="
)
PASS = a_test(
    verdict("step_ms", Outcome.PASS, 10.0, None, "within its budget"),
    verdict("step_ms", Outcome.PASS, 10.0, 10.02),
    verdict("syncs", Outcome.PASS, 0, 0),
    verdict("peak_allocated_bytes", Outcome.PASS, 38_063_309, 38_063_309),
    verdict("latency_ms", Outcome.NOT_CHECKED, because=ELSEWHERE),
    test="tests/test_x.py::test_pass",
)
REGRESSED = a_test(
    verdict("syncs", Outcome.PASS, 1, 1),
    verdict("step_ms", Outcome.REGRESSED, 12.03, 10.0, "all 5 runs are slower"),
    verdict("peak_allocated_bytes", Outcome.PASS, 2**30, 2**30),
    test="tests/test_x.py::test_slower[a long parameter that is never cut]",
)
OVER = a_test(
    verdict("syncs", Outcome.OVER_BUDGET, 1, None, "1 against 0"),
    verdict("launches", Outcome.NO_BASELINE, 0),
    test="tests/test_x.py::test_over",
)
INCONCLUSIVE = a_test(
    verdict(
        "step_ms",
        Outcome.INCONCLUSIVE,
        0.0318,
        0.0312,
        "only 4 stored runs, REGRESSED needs 5; this machine could have seen +4.1 %",
    ),
    test="tests/test_x.py::test_noisy",
)
NEW = a_test(
    verdict("step_ms", Outcome.NOT_CHECKED, because="ms=12 binds on cuda only"),
    verdict("step_ms", Outcome.NO_BASELINE, 12.1),
    verdict("syncs", Outcome.NO_BASELINE, 0),
    test="tests/test_x.py::test_new",
)
IMPROVED = a_test(
    verdict("step_ms", Outcome.IMPROVED, 8.0, 10.0, "all 5 runs are faster"),
    test="tests/test_x.py::test_faster",
)
NOT_CHECKED = a_test(
    verdict("latency_ms", Outcome.NOT_CHECKED, because=ELSEWHERE),
    verdict("syncs", Outcome.NOT_CHECKED, because="no device was touched"),
    test="tests/test_x.py::test_elsewhere",
)
UNMEASURED = TestVerdict(test="tests/test_x.py::test_bare", verdicts=())


def text_of(lines: tuple[Line, ...]) -> str:
    return "\n".join(line.text for line in lines)


def test_the_table_stands_worst_first_with_whole_names_last() -> None:
    lines = summary_lines(
        (PASS, NOT_CHECKED, UNMEASURED, IMPROVED, NEW, INCONCLUSIVE, OVER, REGRESSED)
    )

    assert text_of(lines) == (
        """\
step now  baseline   change  syncs     memory  outcome           test
12.03 ms  10.00 ms  +20.3 %      1  1.000 GiB  SLOWER            tests/test_x.py::test_slower[a long parameter that is never cut]
       -         -        -      1          -  OVER LIMIT syncs  tests/test_x.py::test_over
    no baseline: kernel launches
31.80 us  31.20 us   +1.9 %      -          -  inconclusive      tests/test_x.py::test_noisy
    step time: only 4 stored runs, REGRESSED needs 5; this machine could have
    seen +4.1 %
12.10 ms         -        -      0          -  no baseline       tests/test_x.py::test_new
8.000 ms  10.00 ms  -20.0 %      -          -  improved          tests/test_x.py::test_faster
    step time: all 5 runs are faster
10.00 ms  10.02 ms   -0.2 %      0  36.30 MiB  passed            tests/test_x.py::test_pass
       -         -        -      -          -  not checked       tests/test_x.py::test_elsewhere
       -         -        -      -          -  not checked       tests/test_x.py::test_bare
not checked: step_ms budget of 1 test, ms=12 binds on cuda only
not checked: latency_ms of 2 tests, latency_ms=15 binds on cuda only, this is
    cpu AMD EPYC 2 cores; name it with on=
not checked: syncs of 1 test, no device was touched"""
    )
    assert text_of(lines).isascii()


def test_the_widest_numbers_leave_the_name_in_the_first_eighty_columns() -> None:
    widest = a_test(
        verdict("step_ms", Outcome.INCONCLUSIVE, 1234.0, 0.0004321),
        verdict("syncs", Outcome.PASS, 9919),
        verdict("peak_allocated_bytes", Outcome.PASS, 1023 * 2**20),
        test="TEST",
    )

    assert summary_lines((widest,))[1].text.index("TEST") <= 80


def test_no_verdicts_make_no_table() -> None:
    assert summary_lines(()) == ()


@pytest.mark.parametrize(
    ("verdicts", "text", "role"),
    [
        ((IMPROVED,), f"gpuperf: 1 improved {ON}", LineRole.GOOD),
        ((INCONCLUSIVE,), f"gpuperf: 1 inconclusive {ON}", LineRole.WARN),
        ((PASS,), f"gpuperf: 1 passed {ON}; 1 metric not checked", LineRole.GOOD),
        (
            (OVER,),
            f"gpuperf: 1 failed (1 over limit) {ON}; 1 metric without baseline",
            LineRole.BAD,
        ),
        ((UNMEASURED,), f"gpuperf: 1 not checked {ON}", LineRole.PLAIN),
        ((), f"gpuperf: no verdict {ON}", LineRole.WARN),
    ],
)
def test_the_last_line_names_nothing_that_did_not_occur(
    verdicts: tuple[TestVerdict, ...], text: str, role: LineRole
) -> None:
    assert counts_line(verdicts, CPU) == Line(text=text, role=role)


MEASURED = (
    ("step_ms", 1.893),
    ("peak_allocated_bytes", 3_719_168),
    ("syncs", 0),
    ("host_alloc_bytes", 512),
    ("pageable_copies", 2),
)


def test_what_no_new_test_has_is_no_column() -> None:
    rows = [
        BaselineChange(test="t.py::a", metric=metric, old=None, new=value)
        for metric, value in MEASURED[1:3]
    ]

    assert text_of(refresh_lines(rows)) == (
        """\
   memory  syncs  new test
3.547 MiB      0  t.py::a"""
    )


def test_a_refresh_that_ends_at_its_anchors_has_no_drift_to_show() -> None:
    row = BaselineChange(test="t.py::a", metric="syncs", old=1, new=2, anchor=2)

    assert text_of(refresh_lines((row,))) == (
        """\
old  new  change  metric  test
  1    2      +1  syncs   t.py::a"""
    )


def test_more_is_good_where_the_metric_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hits = Metric(
        name="hits",
        unit=Unit.COUNT,
        kind=MetricKind.EXACT,
        summary="",
        direction=Direction.HIGHER,
    )
    monkeypatch.setitem(METRICS, "hits", hits)

    lines = refresh_lines((BaselineChange(test="t", metric="hits", old=1, new=2),))

    assert lines[1] == Line(text="  1    2      +1  hits    t", role=LineRole.GOOD)


def test_nothing_to_refresh_makes_no_table() -> None:
    assert refresh_lines(()) == ()


INCONCLUSIVE_TIME = verdict("step_ms", Outcome.INCONCLUSIVE, 0.0318, 0.0312)


def test_a_command_that_decides_a_time_names_the_commit_of_its_baseline() -> None:
    tests = [
        a_test(
            INCONCLUSIVE_TIME,
            test=f"test_it.py::test_{commit or 'lost'}",
            recorded=commit,
        )
        for commit in ("abc1234", "")
    ]

    lines = tuple(inconclusive_lines(tests, DEFAULT_INVOCATION, is_strict=False))

    said = "gpuperf: inconclusive: the time of 1 test; to decide it, measure the baseline's code again: gpuperf ab"
    assert [line.text for line in lines] == [
        f"{said} abc1234 -- test_it.py::test_abc1234",
        f"{said} COMMIT -- test_it.py::test_lost",
    ]
