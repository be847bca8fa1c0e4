"""Why a test failed, on one screen: whole texts at width 80."""

from __future__ import annotations

from dataclasses import replace

from builders import a_finding
from builders import a_location
from builders import a_test
from builders import a_verdict

from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.metrics import METRICS
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.command import DEFAULT_INVOCATION
from pytest_gpuperf.report.command import Invocation
from pytest_gpuperf.report.screen.failure import failure_text
from pytest_gpuperf.report.screen.findings import finding_lines


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
UNDECIDED = a_verdict(
    "step_ms",
    Outcome.INCONCLUSIVE,
    10.2,
    10.0,
    because="only 4 stored runs; this machine could have seen +4.1 %",
    limit=10.4,
)
UNKNOWN = a_verdict(
    "peak_allocated_bytes",
    Outcome.NO_BASELINE,
    38_063_309,
    None,
    because="nothing is stored for this test",
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
        verdict,
        nodeid=nodeid,
        source=source,
        invocation=invocation,
        strict=strict,
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
           waits: 1 against 0 in each of 5 runs
  env      torch 2.12.1 -> 2.13.0 since the baseline
  limit    is set in the test's budget (tests/test_x.py:9): change it there, a
           new baseline does not
  accept   gpuperf refresh --accept-drift tests/test_x.py::test_y"""
    )


def test_a_budget_alone_offers_no_refresh_and_no_environment() -> None:
    assert text_of(SYNCS_OVER) == (
        """\
OVER LIMIT syncs: 1 per step, limit 0
  sure?    1 against 0 in each of 5 runs
  limit    is set in the test's budget: change it there, a new baseline does not"""
    )


def test_a_metric_that_became_worse_and_is_over_its_limit_has_one_headline() -> None:
    more = replace(
        SYNCS_OVER, outcome=Outcome.REGRESSED, baseline=0, because="3 of 3 runs"
    )

    text = text_of(SYNCS_OVER, more)

    assert text.splitlines()[:2] == [
        "NEW WAIT: 1 per step, was 0 (+1), limit 0",
        "  sure?    3 of 3 runs",
    ]


def test_a_budget_missed_by_little_is_given_with_digits_that_show_it() -> None:
    over = a_verdict(
        "step_ms",
        Outcome.OVER_BUDGET,
        12.001,
        None,
        because="12.001 ms against 12 ms",
        limit=12,
    )

    assert text_of(over).splitlines()[0] == (
        "OVER LIMIT ms: 12.001 ms per step, limit 12.000 ms"
    )


def test_what_passed_and_what_did_not_change_is_left_out() -> None:
    assert text_of(SLOWER, MEMORY_KEPT) == (
        """\
SLOWER: 12.03 ms per step, was 10.00 ms (+20.3 %), allowed 10.26 ms
  sure?    all 5 fresh runs are slower than the 2nd slowest of 8 stored + 1 %
  accept   gpuperf refresh --accept-drift tests/test_x.py::test_y"""
    )


def test_a_graph_that_is_kept_comes_with_its_remedy() -> None:
    kept = replace(SYNCS_OVER, metric="kept_graphs", outcome=Outcome.REGRESSED)

    text = text_of(kept, SLOWER)

    assert lines_labelled("fix", text) == [
        "  fix      detach() what outlives the step, such as a loss that is kept: it"
    ]
    assert not lines_labelled("fix", text_of(SLOWER))


def test_software_that_came_or_went_is_absent_on_one_side() -> None:
    changed = {"torch": ("2.12.1", "2.13.0"), "cuda": ("", "13.0"), "triton": ("3", "")}

    assert lines_labelled("env", text_of(SLOWER, changed=changed)) == [
        "  env      cuda absent -> 13.0, torch 2.12.1 -> 2.13.0, triton 3 -> absent since"
    ]


def test_counts_regress_by_a_count() -> None:
    more = a_verdict("syncs", Outcome.REGRESSED, 30, 0, because="exact", limit=0)

    assert text_of(more).splitlines()[0] == (
        "NEW WAITS: 30 per step, was 0 (+30), allowed 0"
    )


def test_one_byte_more_is_seen() -> None:
    more = a_verdict(
        "peak_allocated_bytes",
        Outcome.REGRESSED,
        38_063_310,
        38_063_309,
        because="exact",
    )

    assert text_of(more).splitlines()[0] == (
        "MORE MEMORY: 36.300 MiB, was 36.300 MiB (+1 B)"
    )


def test_strictness_says_that_it_failed_the_test() -> None:
    assert text_of(UNDECIDED, UNKNOWN, strict=True) == (
        """\
UNDECIDED step time: 10.20 ms per step, was 10.00 ms (+2.0 %), allowed 10.40 ms
NO BASELINE peak memory: 36.30 MiB
  why      step time: only 4 stored runs; this machine could have seen +4.1 %
           peak memory: nothing is stored for this test
  strict   fails because --gpuperf-strict is on and the result is undecided
  store    gpuperf refresh --kind=missing tests/test_x.py::test_y"""
    )


def test_noise_is_not_offered_to_be_accepted() -> None:
    assert "gpuperf refresh" not in text_of(UNDECIDED)


def test_a_headline_is_one_line_however_long() -> None:
    memory = a_verdict(
        "predicted_peak_allocated_bytes",
        Outcome.REGRESSED,
        131 * 2**20,
        100 * 2**20,
        because="more",
        limit=101 * 2**20,
    )

    assert text_of(memory).splitlines()[0] == (
        "MORE MEMORY: 131.0 MiB, was 100.0 MiB (+31.0 %), allowed 101.0 MiB"
    )


def test_a_missing_baseline_is_one_line_and_is_stored_not_accepted() -> None:
    waits = replace(UNKNOWN, metric="syncs", now=0)

    assert text_of(UNKNOWN, waits) == (
        """\
NO BASELINE: peak memory 36.30 MiB, waits 0
  store    gpuperf refresh --kind=missing tests/test_x.py::test_y"""
    )


def test_a_missing_baseline_that_fails_is_said_beside_what_was_not_measured() -> None:
    unread = a_verdict("syncs", Outcome.INCONCLUSIVE, None, None, because="no profile")
    verdict = a_test(UNKNOWN, unread)

    text = failure_text(verdict, nodeid="t", baseline_needed=True)

    assert text == (
        """\
NO BASELINE: peak memory 36.30 MiB
NOT MEASURED: waits
  why      no profile
  needs    a missing baseline fails if CI is set, or by
           gpuperf_missing_baseline: store it outside of CI, and commit it
  store    gpuperf refresh --kind=missing t"""
    )


SHORT = a_verdict(
    "syncs",
    Outcome.INCONCLUSIVE,
    None,
    None,
    because="the time cap was reached before this phase; raise --gpuperf-seconds",
)


def test_a_test_without_any_number_says_why_and_how_it_gets_more_time() -> None:
    run = Invocation(options=("--gpuperf-device=pretend",), seconds=60.0)
    verdict = a_test(SHORT, replace(SHORT, metric="ops"))

    text = failure_text(verdict, nodeid="t", invocation=run, baseline_needed=True)

    assert text == (
        """\
NOT MEASURED: waits, operations
  why      the time cap was reached before this phase; raise --gpuperf-seconds
  needs    a test that nothing judged fails if CI is set, or by
           gpuperf_missing_baseline
  again    pytest --gpuperf --gpuperf-device=pretend --gpuperf-seconds=240 t"""
    )


def test_what_was_not_measured_beside_a_failure_is_said_once_a_reason() -> None:
    also = (SHORT, replace(SHORT, metric="ops"), replace(SHORT, because="no profile"))

    text = text_of(SLOWER, *also)

    assert (
        "  also     not measured: waits, operations: the time cap was reached" in text
    )
    assert "  also     not measured: waits: no profile" in text


def test_what_is_undecided_beside_a_failure_comes_with_its_reason() -> None:
    text = text_of(SYNCS_OVER, UNDECIDED, UNKNOWN)

    assert lines_labelled("also", text) == [
        "  also     undecided: step time: only 4 stored runs; this machine could have"
    ]


def test_a_metric_without_a_number_is_named_alone() -> None:
    unread = a_verdict(
        "step_ms", Outcome.INCONCLUSIVE, None, None, because="60 s were not enough"
    )

    assert text_of(unread, strict=True).splitlines() == [
        "NOT MEASURED: step time",
        "  why      60 s were not enough",
        "  strict   fails because --gpuperf-strict is on and the result is undecided",
        f"  again    pytest --gpuperf {NODEID}",
    ]


def test_a_long_reason_is_wrapped_between_words() -> None:
    because = "every one of the fresh runs is slower than " * 2 + "every stored one"
    slower = a_verdict("syncs", Outcome.REGRESSED, None, None, because=because)

    assert text_of(slower).splitlines()[1:3] == [
        "  sure?    every one of the fresh runs is slower than every one of the fresh",
        "           runs is slower than every stored one",
    ]


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
        "  --> a.py:0 in f: aten::item, 7 per step",
        "  --> a.py:0 in f: aten::item, 1 per step",
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


def test_a_node_id_with_brackets_and_spaces_is_quoted_for_the_shell_and_never_cut() -> (
    None
):
    nodeid = f"tests/test_x.py::test_{'y' * 80}[a b-'c']"

    quoted = f"'tests/test_x.py::test_{'y' * 80}[a b-'\"'\"'c'\"'\"']'"

    text = text_of(
        SLOWER, nodeid=nodeid, invocation=Invocation(options=("--gpuperf-device=cpu",))
    )

    assert text.splitlines()[-2:] == [
        "  call     tests/test_x.py::test_y",
        f"  accept   gpuperf refresh --accept-drift --device=cpu {quoted}",
    ]


def test_the_worst_failure_still_fits_one_screen() -> None:
    """Six metrics are told whole, whatever else fails."""
    names = [name for name, metric in METRICS.items() if metric.budget]
    regressed = [
        a_verdict(
            name,
            Outcome.REGRESSED,
            2.0,
            1.0,
            because="the fresh run has more",
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
    assert len(lines) <= 26
    (left,) = lines_labelled("also", text)
    assert left.startswith("  also     waits, peak memory, ")
    assert left.endswith(" more")
    assert command.startswith("  accept   gpuperf ")  # to be copied, so it is not cut
    assert max(map(len, lines[:-1])) <= 80
    assert text.isascii()
    assert lines_labelled("env", text) == [
        "  env      software-0 1.0.0 -> 2.0.0, software-1 1.0.0 -> 2.0.0, software-10"
    ]


def test_one_finding_is_shown_where_there_is_no_room_at_all() -> None:
    lines = finding_lines((sync(0.1), sync(0.2)), {"syncs"}, room=0)

    assert lines == (
        "  --> a.py:2 in f: aten::item, 1 per step, 200 us",
        "  fix      keep the value on the GPU, and read it every N steps",
        "           and 1 more",
    )
