"""Why a test failed, on one screen: whole texts at width 80."""

from __future__ import annotations

from dataclasses import replace

from builders import a_finding, a_location, a_test, a_verdict

from pytest_gpuperf.model.finding import Finding, Location
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.command import DEFAULT_INVOCATION, Invocation
from pytest_gpuperf.report.screen.failure import failure_text


NODEID = "tests/test_x.py::test_y"

SLOWER = a_verdict(
    "step_ms",
    Outcome.REGRESSED,
    12.03,
    10.0,
    because="all 5 fresh runs are slower than the 2nd slowest of 8 stored + 1 %",
    limit=10.26,
)
SYNCS_OVER = a_verdict(
    "syncs",
    Outcome.OVER_BUDGET,
    1,
    None,
    because="1 against 0 in each of 5 runs",
    limit=0,
)
MEMORY_KEPT = a_verdict(
    "peak_allocated_bytes",
    Outcome.PASS,
    38_063_309,
    38_063_309,
    because="equal",
    limit=38_063_309,
)
ITEM = a_finding(
    op="aten::_local_scalar_dense",
    blocked_ms=0.31,
    location=a_location(12, "tests/test_x.py", "step"),
)


def sync(blocked_ms: float, per_step: int = 1) -> Finding:
    return a_finding(
        per_step=per_step,
        blocked_ms=blocked_ms,
        location=a_location(int(10 * blocked_ms), "a.py", "f"),
    )


def text_of(
    *verdicts: Verdict,
    nodeid: str = NODEID,
    source: str | None = None,
    invocation: Invocation = DEFAULT_INVOCATION,
    strict: bool = False,
    **explained: object,
) -> str:
    verdict = a_test(*verdicts, test=NODEID, **explained)  # type: ignore[arg-type]
    return failure_text(
        verdict, nodeid=nodeid, source=source, invocation=invocation, strict=strict
    )


def lines_labelled(label: str, text: str) -> list[str]:
    return [line for line in text.splitlines() if line.split()[0] == label]


def test_a_failure_says_what_where_what_to_do_how_sure_it_is_and_what_to_type() -> None:
    text = text_of(
        SLOWER,
        SYNCS_OVER,
        MEMORY_KEPT,
        findings=(replace(ITEM, source="hits += (guess == labels).sum().item()"),),
        changed={"torch": ("2.12.1", "2.13.0")},
        source="tests/test_x.py:9",
    )

    assert text == (
        """\
SLOWER: 12.03 ms per step, was 10.00 ms (+20.3 %), allowed 10.26 ms
OVER LIMIT syncs: 1 per step, limit 0
  --> tests/test_x.py:12 in step
   12 | hits += (guess == labels).sum().item()
      |                                ^^^^^^^
      | the CPU waits here for the GPU, 310 us
  fix      add it up on the GPU with .detach(), read it every N steps
  sure?    step time: all 5 fresh runs are slower than the 2nd slowest of 8
           stored + 1 %
           syncs: 1 against 0 in each of 5 runs
  env      torch 2.12.1 -> 2.13.0 since the baseline
  limit    is set in the test's budget (tests/test_x.py:9): change it there, a
           new baseline does not
  accept   gpuperf refresh --accept-drift tests/test_x.py::test_y"""
    )


def test_a_metric_that_became_worse_and_is_over_its_limit_has_one_headline() -> None:
    more = replace(
        SYNCS_OVER, outcome=Outcome.REGRESSED, baseline=0, because="3 of 3 runs"
    )

    text = text_of(SYNCS_OVER, more)

    assert text.splitlines()[:2] == [
        "NEW SYNC: 1 per step, was 0 (+1), limit 0",
        "  sure?    3 of 3 runs",
    ]


SHORT = a_verdict(
    "syncs",
    Outcome.INCONCLUSIVE,
    None,
    None,
    because="the time cap was reached before this phase; raise --gpuperf-seconds",
)


def test_what_was_not_measured_beside_a_failure_is_said_once_a_reason() -> None:
    also = (
        SHORT,
        replace(SHORT, metric="launches"),
        replace(SHORT, because="no profile"),
    )

    text = text_of(SLOWER, *also)

    assert (
        "  also     not measured: syncs, kernel launches: the time cap was reached"
        in text
    )
    assert "  also     not measured: syncs: no profile" in text


def test_findings_come_worst_first_and_at_most_eight() -> None:
    findings = [sync(blocked) for blocked in (0.5, 0.1, 1.0, 0.2, 0.9, 0.3, 0.8, 0.4)]

    text = text_of(SYNCS_OVER, findings=(*findings, sync(0.6), sync(0.7)))

    assert text.splitlines()[1:11] == [
        "  --> a.py:10 in f: aten::item, 1 per step, 1.00 ms",
        "  fix      keep the value on the GPU, and read it every N steps",
        "  --> a.py:9 in f: aten::item, 1 per step, 900 us",
        "  --> a.py:8 in f: aten::item, 1 per step, 800 us",
        "  --> a.py:7 in f: aten::item, 1 per step, 700 us",
        "  --> a.py:6 in f: aten::item, 1 per step, 600 us",
        "  --> a.py:5 in f: aten::item, 1 per step, 500 us",
        "  --> a.py:4 in f: aten::item, 1 per step, 400 us",
        "  --> a.py:3 in f: aten::item, 1 per step, 300 us",
        "           and 2 more",
    ]


def test_findings_that_block_alike_come_most_frequent_first() -> None:
    text = text_of(SYNCS_OVER, findings=(sync(0.0, 1), sync(0.0, 7)))

    assert lines_labelled("-->", text) == [
        "  --> a.py in f: aten::item, 7 per step",
        "  --> a.py in f: aten::item, 1 per step",
    ]


def test_a_finding_names_all_that_is_known_of_it_on_two_lines_if_need_be() -> None:
    known = a_finding(
        api="cudaStreamSynchronize",
        per_step=30,
        blocked_ms=12.14,
        location=Location(
            file="src/training/loop.py", line=7, function="step", exact=False
        ),
    )

    assert text_of(SYNCS_OVER, findings=(known,)).splitlines()[1:3] == [
        "  --> src/training/loop.py:7 in step (line unknown, this is the def): aten::item",
        "           (cudaStreamSynchronize), 30 per step, 12.1 ms",
    ]


def test_a_finding_of_which_little_is_known_says_so() -> None:
    bare = a_finding(op=None, location=None)
    api = a_finding(op=None, api="cudaFree", per_step=2, location=None)

    assert lines_labelled("-->", text_of(SYNCS_OVER, findings=(bare, api))) == [
        "  --> line unknown: cudaFree, 2 per step",
        "  --> line unknown: sync, 1 per step",
    ]
