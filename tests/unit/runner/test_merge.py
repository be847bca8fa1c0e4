"""Several runs joined: what is refused, what fails, and what the report says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from builders import CPU
from builders import H200
from builders import a_head
from builders import a_record
from builders import a_test
from builders import a_verdict
from builders import holding

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.ab import Comparison
from pytest_gpuperf.model.baseline import Baselines
from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.results import Merged
from pytest_gpuperf.model.results import Record
from pytest_gpuperf.model.results import Results
from pytest_gpuperf.model.results import Shard
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.screen.merged import MOST_ROWS
from pytest_gpuperf.report.screen.merged import merged_lines
from pytest_gpuperf.runner.merge import merge


def judged(test: str, *verdicts: Verdict) -> Record:
    return a_record(a_test(*verdicts, test=test), where="")


def passed(*tests: str) -> dict[str, Record]:
    return {test: judged(test) for test in tests}


REGRESSED = a_verdict(outcome=Outcome.REGRESSED, now=12.0)


def shard(
    source: str,
    tests: Mapping[str, Record],
    *,
    collected: tuple[str, ...] = ("a", "b"),
    exit_status: int | None = 0,
    hardware: Hardware | None = H200,
    version: str = "0.1.0",
    commit: str | None = "1f2e",
    unreported: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    pending: Baselines | None = None,
) -> Shard:
    head = a_head(
        version=version,
        commit=commit,
        hardware=hardware,
        exit_status=exit_status,
        collected=collected,
        selected=tuple(tests),
        unreported=unreported,
        notes=notes,
    )
    results = Results(head=head, tests=tests)
    return Shard(source=source, results=results, pending=pending)


A, B = shard("1.json", passed("a")), shard("2.json", passed("b"))
A_REGRESSED = shard("1.json", {"a": judged("a", REGRESSED)}, exit_status=1)


def last_line(merged: Merged) -> str:
    return merged_lines(merged)[-1]


def test_two_shards_are_one_table_and_one_line() -> None:
    merged = merge([B, A_REGRESSED])

    assert merged.exit_status == 1
    assert merged_lines(merged) == (
        "step now  baseline   change  syncs  memory  outcome  test",
        "12.00 ms  10.00 ms  +20.0 %      -       -  SLOWER   a",
        "    step time: as stored",
        "10.00 ms  10.00 ms    0.0 %      -       -  passed   b",
        "gpuperf: 1 failed (1 worse), 1 passed on cuda-nvidia-h200; 2 shards",
    )


def test_two_kinds_of_hardware_have_a_table_each() -> None:
    elsewhere = shard("2.json", passed("a", "b"), hardware=CPU)

    lines = merged_lines(merge([A, elsewhere]))

    assert lines == (
        "cuda-nvidia-h200:",
        "step now  baseline  change  syncs  memory  outcome  test",
        "10.00 ms  10.00 ms   0.0 %      -       -  passed   a",
        "cpu-amd-epyc-2-cores:",
        "step now  baseline  change  syncs  memory  outcome  test",
        "10.00 ms  10.00 ms   0.0 %      -       -  passed   a",
        "10.00 ms  10.00 ms   0.0 %      -       -  passed   b",
        "gpuperf: 1 passed on cuda-nvidia-h200; 2 passed on cpu-amd-epyc-2-cores; 2 shards",
    )


def test_the_line_counts_what_a_single_run_would() -> None:
    bare = TestVerdict(test="c", verdicts=(), sides=Comparison())
    tests = {
        "a": judged("a", a_verdict(), a_verdict("syncs", Outcome.NO_BASELINE, 1, None)),
        "b": Record(Ending.FAILED, headline="assert 0"),
        "c": Record(Ending.PASSED, Outcome.PASS, "", (encode_briefly(bare),)),
        "d": Record(Ending.SKIPPED, headline="no GPU"),
        "e": judged("e", a_verdict("latency_ms", Outcome.NOT_JUDGED, None, None)),
    }

    merged = merge([shard("1.json", tests, exit_status=1)])

    assert "failed b: assert 0" in merged_lines(merged)
    assert last_line(merged) == (
        "gpuperf: 1 passed, 1 not judged, 1 compared on cuda-nvidia-h200; "
        "without a verdict: 1 failed, 1 skipped; 1 metric without baseline; 1 shard"
    )


def test_a_test_that_no_shard_ran_fails_the_whole_and_is_named() -> None:
    merged = merge([A])

    assert (merged.exit_status, merged.missing) == (1, ("b",))
    assert last_line(merged) == (
        "gpuperf: 1 passed on cuda-nvidia-h200; 1 RUN BY NO SHARD: b; 1 shard"
    )


def test_such_a_test_can_be_allowed_and_is_still_named() -> None:
    merged = merge([A], allow_missing=True)

    assert (merged.exit_status, merged.missing) == (0, ("b",))


def test_a_test_that_ran_on_any_hardware_was_run() -> None:
    merged = merge([A, shard("2.json", passed("b"), hardware=CPU)])

    assert (merged.exit_status, merged.missing) == (0, ())


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (None, "the run did not finish, its process died"),
        (2, "the run did not finish, pytest exited with 2"),
        (4, "the run did not finish, pytest exited with 4"),
        (
            1,
            "pytest exited with 1, and none of its measured tests failed: see its own report",
        ),
    ],
)
def test_a_shard_that_failed_beside_its_tests_fails_the_whole(
    status: int | None, why: str
) -> None:
    merged = merge([A, shard("2.json", passed("b"), exit_status=status)])

    assert merged.exit_status == 1
    assert merged_lines(merged)[-2:] == (
        f"objection: 2.json: {why}",
        "gpuperf: 2 passed on cuda-nvidia-h200; 1 OBJECTION; 2 shards",
    )


def test_a_lost_test_is_named() -> None:
    merged = merge([A, shard("2.json", passed("b"), exit_status=1, unreported=("b",))])

    assert merged.exit_status == 1
    assert last_line(merged) == (
        "gpuperf: 2 passed on cuda-nvidia-h200; 1 WITHOUT A RESULT: b; 2 shards"
    )


def test_too_few_shards_fail_the_whole() -> None:
    merged = merge([A, B], expected=3)

    assert (merged.exit_status, merged.objections) == (1, ("found 2 of 3 shards",))


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [((0, 0), 0), ((0, 5), 0), ((5, 5), 5), ((5, 1), 1), ((0, 1), 1)],
)
def test_the_exit_status_is_that_of_one_run_over_everything(
    statuses: tuple[int, int], whole: int
) -> None:
    shards = [
        shard(f"{n}.json", {}, collected=(), exit_status=status, hardware=None)
        for n, status in enumerate(statuses)
    ]

    merged = merge(shards)

    assert merged.exit_status == whole
    assert last_line(merged).startswith("gpuperf: no verdict; ")


def test_what_is_said_once_is_said_once() -> None:
    said = ("gpuperf: all tests are slower",)
    shards = [
        shard("1.json", passed("a"), notes=said),
        shard("2.json", passed("b"), notes=said),
    ]

    assert merged_lines(merge(shards))[-2:] == (
        "gpuperf: all tests are slower",
        "gpuperf: 2 passed on cuda-nvidia-h200; 2 shards",
    )


def test_equal_verdicts_on_a_test_that_ran_twice_are_one() -> None:
    first = judged("a", a_verdict(now=10.0), a_verdict("peak_allocated_bytes", now=1e9))
    again = judged(
        "a", a_verdict(now=10.04), a_verdict("peak_allocated_bytes", now=1.0001e9)
    )

    merged = merge([shard("1.json", {"a": first}), shard("2.json", {"a": again}), B])

    assert merged.exit_status == 0
    assert merged.tests["cuda-nvidia-h200"]["a"] == (first, "1.json")


PASSED, FAILED = Record(Ending.PASSED), Record(Ending.FAILED)
SYNCS = a_verdict("syncs", now=1)


@pytest.mark.parametrize(
    ("first", "second", "said", "other"),
    [
        (judged("a"), judged("a", REGRESSED), "passed", "failed"),
        (PASSED, FAILED, "passed", "failed"),
        (
            judged("a"),
            judged("a", a_verdict(outcome=Outcome.INCONCLUSIVE)),
            "step_ms pass",
            "step_ms inconclusive",
        ),
        (
            judged("a", SYNCS),
            judged("a", a_verdict("syncs", now=2)),
            "syncs pass (1)",
            "syncs pass (2)",
        ),
        (
            judged("a", SYNCS),
            judged("a", a_verdict("syncs", now=None)),
            "syncs pass (1)",
            "syncs pass",
        ),
        (
            judged("a", a_verdict(), SYNCS),
            judged("a"),
            "syncs pass (1)",
            "nothing more",
        ),
        (
            judged("a"),
            judged("a", a_verdict(), SYNCS),
            "nothing more",
            "syncs pass (1)",
        ),
    ],
)
def test_shards_that_disagree_about_a_test_are_refused(
    first: Record, second: Record, said: str, other: str
) -> None:
    shards = [shard("1.json", {"a": first}), shard("2.json", {"a": second})]

    with pytest.raises(UsageError) as caught:
        merge(shards)

    assert str(caught.value) == (
        f"a on cuda-nvidia-h200: 1.json says {said}, 2.json says {other}; give each test "
        "to one shard, or find out why they differ [GP517]"
    )


def test_a_test_may_differ_from_hardware_to_hardware() -> None:
    slower = {"a": judged("a", REGRESSED), "b": judged("b")}

    merged = merge([A, shard("2.json", slower, hardware=CPU, exit_status=1)])

    assert merged.exit_status == 1


def test_shards_of_two_versions_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        merge([A, shard("2.json", {}, version="0.2.0")])

    assert str(caught.value) == (
        "1.json was written by pytest-gpuperf 0.1.0, 2.json by 0.2.0: install the same "
        "version for every shard [GP516]"
    )


def test_shards_of_two_commits_are_refused() -> None:
    unknown = shard("0.json", {}, commit=None)

    with pytest.raises(UsageError) as caught:
        merge([unknown, A, shard("2.json", {}, commit="ffff")])

    assert str(caught.value) == (
        "1.json is of commit 1f2e, 2.json of ffff: run every shard on the same commit "
        "[GP516]"
    )


def test_a_verdict_that_is_shown_must_be_readable() -> None:
    odd = Record(
        Ending.PASSED,
        Outcome.PASS,
        "",
        ({"test": "a", "verdicts": [{"outcome": "pass"}]},),
    )

    with pytest.raises(UsageError) as caught:
        merged_lines(merge([shard("1.json", {"a": odd}), B]))

    assert str(caught.value).startswith("1.json: a verdict of a has another shape, ")


def test_a_table_ends_where_nobody_reads_on() -> None:
    tests = tuple(f"t{n}" for n in range(MOST_ROWS + 5))
    found = passed(*tests) | {"worst": judged("worst", REGRESSED)}

    lines = merged_lines(
        merge([shard("1.json", found, collected=tests, exit_status=1)])
    )

    assert lines[1].endswith("SLOWER   worst")
    assert lines[-3].endswith(f"t{MOST_ROWS - 2}")
    assert lines[-2] == "and 6 more, none is worse"


def test_what_is_pending_is_joined_by_hardware() -> None:
    first = holding(a=1, stale=9)
    again = holding(a=2, b=3)
    other = holding(CPU, a=4)

    merged = merge(
        [
            shard("1.json", passed("a"), pending=first),
            shard("2.json", passed("a", "b"), pending=again),
            shard("3.json", passed("a"), hardware=CPU, pending=other),
        ]
    )

    assert merged.pending == (holding(a=1, b=3), other)
