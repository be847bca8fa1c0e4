"""What is shown of a test whose ranks did not all do the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_result

from pytest_gpuperf.devices.process_time import UsedTime
from pytest_gpuperf.distributed.processes import (
    OWN_FOLDER,
    RankEnd,
    result_of,
    result_of_launched,
)
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.run import Ending, TestResult


TEST = "test_it.py::test_step"

STUCK = f"""\
Thread 0x0001 (most recent call first):
  File "/lib/threading.py", line 320 in wait

Current thread 0x0002 (most recent call first):
  File "/lib/torch/distributed.py", line 9 in all_reduce
  File "/home/me/test_it.py", line 12 in step
  File "{OWN_FOLDER}/measure/step.py", line 56 in run_once
  File "/home/me/test_it.py", line 14 in test_step
  File "/lib/_pytest/python.py", line 166 in pytest_pyfunc_call
  File "/lib/pluggy/_callers.py", line 121 in _multicall
"""

CRASHED = STUCK.replace("Thread", "Fatal Python error: Segmentation fault\n\nThread")

BOOM = a_result(
    test=TEST,
    ending=Ending.FAILED,
    text="    def step():\ntest_it.py:14: \n_ _ _\na b.py:13: in step\n    x: 3\nE   ValueError: boom\n\ntest_it.py:12: ValueError",
    headline="ValueError: boom",
    sections=(("Captured stdout call", "hello"),),
)


def ended(result: TestResult, **changes: object) -> RankEnd:
    failed = result.ending is Ending.FAILED
    message = {"failed": failed, "result": encode(result), "at": changes.pop("at", 1.0)}
    return RankEnd(**{**LAST, "said": (message,), **changes})  # type: ignore[arg-type]


LAST: dict[str, object] = {
    "said": (),
    "code": 0,
    "ended_at": 5.0,
    "stack": "",
    "output": "it printed nothing",
}


def killed(stack: str = STUCK) -> RankEnd:
    return RankEnd(**{**LAST, "code": None, "stack": stack})  # type: ignore[arg-type]


def passed(**changes: object) -> TestResult:
    return a_result(test=TEST, **changes)  # type: ignore[arg-type]


def test_where_all_pass_rank_0_speaks_and_what_the_others_printed_is_kept() -> None:
    first = passed(sections=(("Captured stdout call", "zero"),), seconds=2.0)
    second = passed(sections=(("Captured stdout call", "one"),), seconds=3.0)

    result = result_of(TEST, [ended(first), ended(second)], 60)

    assert result == passed(
        sections=(
            ("Captured stdout call", "zero"),
            ("Captured stdout call (rank 1)", "one"),
        ),
        seconds=2.0,
    )


def test_where_all_skip_the_test_is_skipped() -> None:
    skipped = a_result(test=TEST, ending=Ending.SKIPPED, text="no data")

    assert result_of(TEST, [ended(skipped), ended(skipped)], 60) == skipped


def test_ranks_that_end_differently_fail() -> None:
    skipped = a_result(test=TEST, ending=Ending.SKIPPED, text="no data")

    result = result_of(TEST, [ended(passed()), ended(skipped)], 60)

    assert result == TestResult(
        test=TEST,
        ending=Ending.FAILED,
        text="the ranks of a test must end alike: rank 0 passed, rank 1 skipped",
    )


def test_a_rank_that_fails_is_named_with_its_traceback_and_where_the_other_was() -> (
    None
):
    result = result_of(TEST, [killed(), ended(BOOM)], 60)

    assert result == TestResult(
        test=TEST,
        ending=Ending.FAILED,
        text=(
            f"rank 1 of 2 failed first:\n\n{BOOM.text}\n\n"
            "rank 0 was at\n"
            "  /lib/torch/distributed.py:9 in all_reduce\n"
            "  /home/me/test_it.py:12 in step\n"
            "  /home/me/test_it.py:14 in test_step"
        ),
        headline="rank 1: ValueError: boom",
        sections=BOOM.sections,
    )


def test_the_first_failure_is_shown_whole_and_those_it_caused_in_lines() -> None:
    closed = a_result(
        test=TEST, ending=Ending.FAILED, text=BOOM.text, headline="connection closed"
    )

    result = result_of(TEST, [ended(closed, at=2.0), ended(BOOM), ended(passed())], 60)

    assert result.headline == "rank 1: ValueError: boom"
    assert result.text.splitlines()[-5:] == [
        "rank 0 failed then: connection closed",
        "  test_it.py:12",
        "  a b.py:13 in step",
        "  test_it.py:14",
        "rank 2 had ended",
    ]


def test_a_crash_is_known_by_its_stack() -> None:
    crashed = RankEnd(
        said=(),
        code=-11,
        ended_at=1.0,
        stack=CRASHED,
        output="Fatal Python error: Segmentation fault\n\nThread 0x0001",
    )

    result = result_of(TEST, [killed("nothing that anybody knows"), crashed], 60)

    assert result == TestResult(
        test=TEST,
        ending=Ending.DIED,
        text=(
            "rank 1 of 2 was killed by signal 11: Fatal Python error: Segmentation fault\n"
            "  /lib/torch/distributed.py:9 in all_reduce\n"
            "  /home/me/test_it.py:12 in step\n"
            "  /home/me/test_it.py:14 in test_step\n\n"
            "rank 0 was at an unknown place"
        ),
    )


def test_a_rank_that_could_not_start_is_known_by_what_it_printed() -> None:
    broken = RankEnd(said=(), code=1, ended_at=1.0, stack="", output="one\ntwo")

    result = result_of(TEST, [broken, broken], 60)

    assert result.text == (
        "rank 0 of 2 exited with 1: one\ntwo\n\nrank 1 exited with 1: one\ntwo"
    )


def test_a_hang_says_where_each_rank_was() -> None:
    result = result_of(TEST, [killed(), ended(passed())], 7.5)

    assert result == TestResult(
        test=TEST,
        ending=Ending.DIED,
        text=(
            "the 2 ranks gave no result and were killed: they took 7.5 s; does one of them "
            "wait for what another never does? If they only need longer, raise timeout_s of "
            "gpuperf.ranks\n\n"
            "rank 0 was at\n"
            "  /lib/torch/distributed.py:9 in all_reduce\n"
            "  /home/me/test_it.py:12 in step\n"
            "  /home/me/test_it.py:14 in test_step\n"
            "rank 1 had ended"
        ),
    )


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (
            UsedTime(wall_s=60.0, cpu_s=1.25, idle=True),
            "they did nothing for most of 60 s (1.2 s of CPU); does one of them wait",
        ),
        (
            UsedTime(wall_s=180.0, cpu_s=61.0, idle=False),
            "they used 61 s of CPU in 180 s; does one of them loop for ever?",
        ),
    ],
    ids=["wait", "loop"],
)
def test_a_hang_says_whether_the_ranks_computed(used: UsedTime, text: str) -> None:
    result = result_of(TEST, [replace(killed(), used=used), ended(passed())], 60.0)

    assert text in result.text


def test_a_rank_of_which_no_word_came_is_named_before_what_the_others_say() -> None:
    result = result_of_launched(TEST, [ended(BOOM), None, killed("nowhere")], 60)

    assert (result.ending, result.headline) == (Ending.DIED, "")
    assert result.text.splitlines()[:3] == [
        "no word came of how rank 1 ended: did its pytest die, or is its machine cut off?",
        "",
        "rank 0 of 3 failed first:",
    ]
    assert result.text.splitlines()[-2:] == [
        "rank 1 was at an unknown place",
        "rank 2 was at an unknown place",
    ]


def test_where_word_of_all_ranks_came_a_launch_changes_nothing() -> None:
    ends = [ended(BOOM), ended(passed())]

    assert result_of_launched(TEST, ends, 60) == result_of(TEST, ends, 60)
