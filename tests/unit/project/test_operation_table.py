"""The table of operations, and the forks in which they are asked about."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest


pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from agreement_operations import Answer, Row, Standing, as_markdown, changes
from forks import Ended, Task, each_in_a_fork


def answer(waits: int = 0, *, inconclusive: int = 0, silent: str = "") -> Answer:
    place = "syncs in forward"
    return Answer(
        counts={place: waits} if waits else {},
        inconclusive={place: inconclusive} if inconclusive else {},
        silent=silent,
    )


def row(*pairs: tuple[Answer, Answer], name: str = "add") -> Row:
    return Row(name=name, simulated=[p for p, _ in pairs], cuda=[c for _, c in pairs])


SAME = row((answer(1), answer(1)), (answer(), answer()))
OTHER = row((answer(1), answer(1)), (answer(), answer(2)), name="mul")
OPEN = row((answer(1, inconclusive=1), answer(1)), name="mode")
MUTE = row((answer(1), answer(silent="it raised")), name="eig")


def test_a_sample_in_which_the_sides_differ_makes_the_operation_differ() -> None:
    assert [r.standing for r in (SAME, OTHER)] == [Standing.AGREE, Standing.DIFFER]
    assert OTHER.shown == "syncs in forward: 0, in fact 2 (1 of 2)"


def test_what_only_a_gpu_can_tell_is_no_agreement() -> None:
    assert OPEN.standing is Standing.DIFFER
    assert OPEN.shown == "syncs in forward: 1 to 2, in fact 1 (1 of 1)"


def test_an_operation_of_which_no_sample_ran_on_both_is_not_checked() -> None:
    assert MUTE.standing is Standing.UNCHECKED
    assert MUTE.shown == "cuda: it raised"


def test_samples_that_one_side_did_not_run_are_left_out() -> None:
    mixed = row((answer(1), answer(silent="it raised")), (answer(2), answer(2)))

    assert mixed.standing is Standing.AGREE


def test_nothing_has_changed_where_all_is_as_it_is_known() -> None:
    rows = [SAME, OTHER, MUTE]

    assert [*changes(rows, {"mul": "why"}, {"eig": "why"})] == []


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({}, f"mul: differ, known as agree: {OTHER.shown}"),
        ({"mul": "why", "add": "why"}, "add: agree, known as differ: "),
    ],
    ids=["a new difference", "one that has vanished"],
)
def test_a_change_of_what_is_known_is_found(known: dict[str, str], line: str) -> None:
    assert [*changes([SAME, OTHER], known, {})] == [line]


def test_the_page_has_the_cause_of_each_difference() -> None:
    page = as_markdown([SAME, OTHER, MUTE], "torch", {"mul": "it rounds"}, {})

    assert "| 3 | 1 | 1 | 1 | 4 |" in page
    assert f"| `mul` | {OTHER.shown} | it rounds |" in page
    assert "| `eig` | cuda: it raised | not known |" in page


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    msg = "no such thing"
    raise LookupError(msg)


def hang() -> None:
    time.sleep(60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_fork_that_crashes_or_fails_loses_its_own_task_alone() -> None:
    functions = (crash, fail, os.getpid)
    tasks = [Task(name=f.__name__, function=f, arguments=()) for f in functions]

    ended = {e.name: e for e in each_in_a_fork(tasks, jobs=2, most_seconds=60)}

    assert ended["crash"] == Ended("crash", None, "exit status -9")
    assert ended["fail"] == Ended("fail", None, "LookupError: no such thing")
    assert ended["getpid"].result != os.getpid()
    assert ended["getpid"].failure == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_fork_that_hangs_is_ended_at_its_limit() -> None:
    task = Task(name="hang", function=hang, arguments=())

    assert [*each_in_a_fork([task], jobs=1, most_seconds=0.05)] == [
        Ended("hang", None, "it did not end")
    ]
