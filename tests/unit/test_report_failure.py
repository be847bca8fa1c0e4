"""Why a test failed, on one screen: whole texts at width 80."""

from __future__ import annotations

from dataclasses import replace

from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.metrics import METRICS
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.command import DEFAULT_INVOCATION
from pytest_gpuperf.report.command import Invocation
from pytest_gpuperf.report.screen.failure import failure_text
from pytest_gpuperf.report.screen.findings import finding_lines


NODEID = "tests/test_x.py::test_y"
FILE = "baselines/cuda-nvidia-h200.json"

SLOWER = Verdict(
    metric="step_ms",
    outcome=Outcome.REGRESSED,
    because="all 5 fresh runs are slower than the 2nd slowest of 8 stored + 1 %",
    baseline=10.0,
    now=12.03,
    limit=10.26,
)
SYNCS_OVER = Verdict(
    metric="syncs",
    outcome=Outcome.OVER_BUDGET,
    because="1 against 0 in each of 5 runs",
    now=1,
    limit=0,
)
MEMORY_KEPT = Verdict(
    metric="live_peak_bytes",
    outcome=Outcome.PASS,
    because="equal",
    baseline=38_063_309,
    now=38_063_309,
    limit=38_063_309,
)
UNDECIDED = Verdict(
    metric="step_ms",
    outcome=Outcome.INCONCLUSIVE,
    because="only 4 stored runs; this machine could have seen +4.1 %",
    baseline=10.0,
    now=10.2,
    limit=10.4,
)
UNKNOWN = Verdict(
    metric="live_peak_bytes",
    outcome=Outcome.NO_BASELINE,
    because="nothing is stored for this test",
    now=38_063_309,
)
ITEM = Finding(
    kind=FindingKind.SYNC,
    op="aten::_local_scalar_dense",
    api=None,
    per_step=1,
    blocked_ms=0.31,
    location=Location(file="tests/test_x.py", line=12, function="step"),
)


def sync(blocked_ms: float, per_step: int = 1) -> Finding:
    return Finding(
        kind=FindingKind.SYNC,
        op="aten::item",
        api=None,
        per_step=per_step,
        blocked_ms=blocked_ms,
        location=Location(file="a.py", line=int(10 * blocked_ms), function="f"),
    )


def text_of(
    *verdicts: Verdict,
    nodeid: str = NODEID,
    source: str | None = None,
    invocation: Invocation = DEFAULT_INVOCATION,
    strict: bool = False,
    **explained: object,
) -> str:
    verdict = TestVerdict(test=NODEID, verdicts=verdicts, **explained)  # type: ignore[arg-type]
    return failure_text(
        verdict,
        nodeid=nodeid,
        baseline_file=FILE,
        source=source,
        invocation=invocation,
        strict=strict,
    )


def lines_labelled(label: str, text: str) -> list[str]:
    return [line for line in text.splitlines() if line.split()[0] == label]


def test_a_failure_says_what_by_how_much_why_since_when_where_and_what_to_do() -> None:
    text = text_of(
        SLOWER,
        SYNCS_OVER,
        MEMORY_KEPT,
        findings=(ITEM,),
        changed={"torch": ("2.12.1", "2.13.0")},
        source="tests/test_x.py:9",
    )

    assert text == (
        """\
REGRESSED step_ms: 10.00 ms -> 12.03 ms (+20.3 %), limit 10.26 ms
  why      all 5 fresh runs are slower than the 2nd slowest of 8 stored + 1 %
OVER BUDGET syncs: 1 a step, budget 0
  why      1 against 0 in each of 5 runs
  changed  torch 2.12.1 -> 2.13.0
  at       tests/test_x.py:12 in step:
           aten::_local_scalar_dense, 1 a step, 310 us
  also     live_peak_bytes 36.30 MiB (pass)
  budget   is set in the test's mark or call (tests/test_x.py:9):
           a refresh does not move it
  baseline baselines/cuda-nvidia-h200.json
  accept   pytest --gpuperf --gpuperf-update=all --gpuperf-accept-drift tests/test_x.py::test_y"""
    )


def test_a_budget_alone_offers_no_refresh_and_no_environment() -> None:
    assert text_of(SYNCS_OVER) == (
        """\
OVER BUDGET syncs: 1 a step, budget 0
  why      1 against 0 in each of 5 runs
  budget   is set in the test's mark or call:
           a refresh does not move it"""
    )


def test_a_budget_missed_by_little_is_given_with_digits_that_show_it() -> None:
    over = Verdict(
        metric="step_ms",
        outcome=Outcome.OVER_BUDGET,
        because="12.001 ms against 12 ms",
        now=12.001,
        limit=12,
    )

    assert text_of(over).splitlines()[0] == (
        "OVER BUDGET step_ms: 12.001 ms, budget 12.000 ms"
    )


def test_a_budget_that_is_kept_is_not_called_a_pass() -> None:
    kept = Verdict(
        metric="step_ms", outcome=Outcome.PASS, because="", now=12.03, limit=13.0
    )

    assert lines_labelled("also", text_of(kept, SLOWER)) == [
        "  also     step_ms 12.03 ms (within budget)"
    ]


def test_each_metric_stands_once_in_the_context_with_its_worst() -> None:
    kept = Verdict(metric="syncs", outcome=Outcome.PASS, because="", now=0, limit=0)
    stored = Verdict(
        metric="syncs", outcome=Outcome.PASS, because="", now=0, baseline=0, limit=0
    )
    unbound = Verdict(metric="live_peak_bytes", outcome=Outcome.NOT_JUDGED, because="")

    text = text_of(SLOWER, kept, unbound, stored, MEMORY_KEPT)

    assert lines_labelled("also", text) == [
        "  also     syncs 0 (pass), live_peak_bytes 36.30 MiB (pass)"
    ]


def test_an_unchanged_environment_is_said() -> None:
    assert text_of(SLOWER) == (
        """\
REGRESSED step_ms: 10.00 ms -> 12.03 ms (+20.3 %), limit 10.26 ms
  why      all 5 fresh runs are slower than the 2nd slowest of 8 stored + 1 %
  changed  no version of software since the baseline
  baseline baselines/cuda-nvidia-h200.json
  accept   pytest --gpuperf --gpuperf-update=all --gpuperf-accept-drift tests/test_x.py::test_y"""
    )


def test_a_graph_that_is_kept_comes_with_its_remedy() -> None:
    kept = replace(SYNCS_OVER, metric="kept_graphs", outcome=Outcome.REGRESSED)

    text = text_of(kept, SLOWER)

    assert lines_labelled("try", text) == [
        "  try      detach() what outlives the step, such as a loss that is kept: it"
    ]
    assert not lines_labelled("try", text_of(SLOWER))


def test_software_that_came_or_went_is_absent_on_one_side() -> None:
    changed = {"torch": ("2.12.1", "2.13.0"), "cuda": ("", "13.0"), "triton": ("3", "")}

    assert lines_labelled("changed", text_of(SLOWER, changed=changed)) == [
        "  changed  cuda absent -> 13.0, torch 2.12.1 -> 2.13.0, triton 3 -> absent"
    ]


def test_counts_regress_by_a_count() -> None:
    more = Verdict(
        metric="syncs",
        outcome=Outcome.REGRESSED,
        because="exact",
        baseline=0,
        now=30,
        limit=0,
    )

    assert text_of(more).splitlines()[0] == (
        "REGRESSED syncs: 0 -> 30 a step (+30), limit 0"
    )


def test_one_byte_more_is_seen() -> None:
    more = Verdict(
        metric="live_peak_bytes",
        outcome=Outcome.REGRESSED,
        because="exact",
        baseline=38_063_309,
        now=38_063_310,
    )

    assert text_of(more).splitlines()[0] == (
        "REGRESSED live_peak_bytes: 36.300 MiB -> 36.300 MiB (+1 B)"
    )


def test_strictness_says_that_it_failed_the_test() -> None:
    assert text_of(UNDECIDED, UNKNOWN, strict=True) == (
        """\
INCONCLUSIVE step_ms: 10.00 ms -> 10.20 ms (+2.0 %), limit 10.40 ms
  why      only 4 stored runs; this machine could have seen +4.1 %
NO BASELINE live_peak_bytes: 36.30 MiB
  why      nothing is stored for this test
  changed  no version of software since the baseline
  strict   what cannot be decided fails
  baseline baselines/cuda-nvidia-h200.json
  record   pytest --gpuperf --gpuperf-update=missing tests/test_x.py::test_y"""
    )


def test_noise_is_not_offered_to_be_accepted() -> None:
    assert text_of(UNDECIDED).splitlines()[2:] == [
        "  changed  no version of software since the baseline"
    ]


def test_a_headline_is_one_line_however_long() -> None:
    memory = Verdict(
        metric="predicted_peak_allocated_bytes",
        outcome=Outcome.REGRESSED,
        because="more",
        baseline=100 * 2**20,
        now=131 * 2**20,
        limit=101 * 2**20,
    )

    assert text_of(memory).splitlines()[0] == (
        "REGRESSED predicted_peak_allocated_bytes: 100.0 MiB -> 131.0 MiB (+31.0 %), "
        "limit 101.0 MiB"
    )


def test_a_missing_baseline_is_recorded_not_accepted() -> None:
    assert text_of(UNKNOWN) == (
        """\
NO BASELINE live_peak_bytes: 36.30 MiB
  why      nothing is stored for this test
  baseline baselines/cuda-nvidia-h200.json
  record   pytest --gpuperf --gpuperf-update=missing tests/test_x.py::test_y"""
    )


def test_what_was_not_decided_beside_a_failure_stands_in_one_line() -> None:
    unread = Verdict(metric="latency_ms", outcome=Outcome.NOT_JUDGED, because="cpu")

    assert lines_labelled("also", text_of(SLOWER, UNKNOWN, unread)) == [
        "  also     live_peak_bytes 36.30 MiB (no baseline), latency_ms (not judged)"
    ]


def test_a_line_of_context_that_is_too_long_counts_the_rest() -> None:
    passing = [
        Verdict(metric=name, outcome=Outcome.PASS, because="", now=1, baseline=1)
        for name in ("syncs", "alloc_retries", "live_peak_bytes", "driver_bytes")
    ]

    assert lines_labelled("also", text_of(SLOWER, *passing)) == [
        "  also     syncs 1 (pass), alloc_retries 1 (pass) and 2 more"
    ]


def test_a_metric_without_a_number_is_named_alone() -> None:
    unread = Verdict(
        metric="step_ms", outcome=Outcome.INCONCLUSIVE, because="60 s were not enough"
    )

    assert text_of(unread).splitlines()[:2] == [
        "INCONCLUSIVE step_ms",
        "  why      60 s were not enough",
    ]


def test_a_long_reason_is_wrapped_between_words() -> None:
    because = "every one of the fresh runs is slower than " * 2 + "every stored one"
    slower = Verdict(metric="syncs", outcome=Outcome.REGRESSED, because=because)

    assert text_of(slower).splitlines()[1:3] == [
        "  why      every one of the fresh runs is slower than every one of the fresh",
        "           runs is slower than every stored one",
    ]


def test_findings_come_worst_first_and_at_most_eight() -> None:
    findings = [sync(blocked) for blocked in (0.5, 0.1, 1.0, 0.2, 0.9, 0.3, 0.8, 0.4)]

    text = text_of(SYNCS_OVER, findings=(*findings, sync(0.6), sync(0.7)))

    assert text.splitlines()[2:11] == [
        "  at       a.py:10 in f: aten::item, 1 a step, 1.00 ms",
        "  at       a.py:9 in f: aten::item, 1 a step, 900 us",
        "  at       a.py:8 in f: aten::item, 1 a step, 800 us",
        "  at       a.py:7 in f: aten::item, 1 a step, 700 us",
        "  at       a.py:6 in f: aten::item, 1 a step, 600 us",
        "  at       a.py:5 in f: aten::item, 1 a step, 500 us",
        "  at       a.py:4 in f: aten::item, 1 a step, 400 us",
        "  at       a.py:3 in f: aten::item, 1 a step, 300 us",
        "           and 2 more",
    ]


def test_findings_that_block_alike_come_most_frequent_first() -> None:
    text = text_of(SYNCS_OVER, findings=(sync(0.0, 1), sync(0.0, 7)))

    assert lines_labelled("at", text) == [
        "  at       a.py:0 in f: aten::item, 7 a step",
        "  at       a.py:0 in f: aten::item, 1 a step",
    ]


def test_a_finding_names_all_that_is_known_of_it_on_two_lines_if_need_be() -> None:
    known = Finding(
        kind=FindingKind.SYNC,
        op="aten::item",
        api="cudaStreamSynchronize",
        per_step=30,
        blocked_ms=12.14,
        location=Location(
            file="src/training/loop.py", line=7, function="step", exact=False
        ),
    )

    assert text_of(SYNCS_OVER, findings=(known,)).splitlines()[2:4] == [
        "  at       src/training/loop.py:7 in step (line unknown, this is the def):",
        "           aten::item (cudaStreamSynchronize), 30 a step, 12.1 ms",
    ]


def test_a_finding_of_which_little_is_known_says_so() -> None:
    bare = Finding(kind=FindingKind.SYNC, op=None, api=None, per_step=1, blocked_ms=0.0)
    api = Finding(
        kind=FindingKind.SYNC, op=None, api="cudaFree", per_step=2, blocked_ms=0.0
    )

    assert lines_labelled("at", text_of(SYNCS_OVER, findings=(bare, api))) == [
        "  at       line unknown: cudaFree, 2 a step",
        "  at       line unknown: sync, 1 a step",
    ]


def test_a_node_id_with_brackets_and_spaces_is_quoted_for_the_shell_and_never_cut() -> (
    None
):
    nodeid = f"tests/test_x.py::test_{'y' * 80}[a b-'c']"

    quoted = f"'tests/test_x.py::test_{'y' * 80}[a b-'\"'\"'c'\"'\"']'"

    text = text_of(
        SLOWER, nodeid=nodeid, invocation=Invocation(options=("--gpuperf-device=cpu",))
    )

    assert text.splitlines()[-3:] == [
        "  call     tests/test_x.py::test_y",
        "  baseline baselines/cuda-nvidia-h200.json",
        f"  accept   pytest --gpuperf --gpuperf-update=all --gpuperf-accept-drift --gpuperf-device=cpu {quoted}",
    ]


def test_the_worst_failure_still_fits_one_screen() -> None:
    """Six metrics are told whole, whatever else fails."""
    names = [name for name, metric in METRICS.items() if metric.budget]
    regressed = [
        Verdict(
            metric=name,
            outcome=Outcome.REGRESSED,
            because="the fresh run has more",
            baseline=1.0,
            now=2.0,
            limit=1.0,
        )
        for name in names
    ]
    changed = {f"software-{i}": ("1.0.0", "2.0.0") for i in range(20)}

    text = text_of(
        SYNCS_OVER,
        *regressed,
        findings=tuple(sync(blocked / 10) for blocked in range(1, 31)),
        changed=changed,
    )

    *_, command = lines = text.splitlines()
    assert len(lines) == 24
    assert lines_labelled("also", text) == [
        (
            "  also     device_allocs 2 (regressed), growth_bytes 2 B (regressed) and "
            f"{len(names) - 7} more"
        )
    ]
    assert command.startswith("  accept   pytest ")  # to be copied, so it is not cut
    assert max(map(len, lines[:-1])) <= 80
    assert text.isascii()
    assert lines_labelled("changed", text) == [
        "  changed  software-0 1.0.0 -> 2.0.0, software-1 1.0.0 -> 2.0.0, software-10"
    ]


def test_one_finding_is_shown_where_there_is_no_room_at_all() -> None:
    lines = finding_lines((sync(0.1), sync(0.2)), {"syncs"}, room=0)

    assert lines == (
        "  at       a.py:2 in f: aten::item, 1 a step, 200 us",
        "           and 1 more",
    )


def test_the_trace_and_the_snapshot_are_named_with_their_viewers() -> None:
    verdict = TestVerdict(
        test=NODEID,
        verdicts=(SYNCS_OVER,),
        trace=".gpuperf/traces/a.json.gz",
        snapshot=".gpuperf/memory-a.pickle",
    )

    text = failure_text(verdict, nodeid=NODEID, baseline_file=FILE)

    assert text.splitlines() == [
        "OVER BUDGET syncs: 1 a step, budget 0",
        "  why      1 against 0 in each of 5 runs",
        "  trace    .gpuperf/traces/a.json.gz",
        "           for the viewer at ui.perfetto.dev",
        "  snapshot .gpuperf/memory-a.pickle",
        "           for the viewer at pytorch.org/memory_viz",
        "  budget   is set in the test's mark or call:",
        "           a refresh does not move it",
    ]
