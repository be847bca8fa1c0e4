"""Tests go to slots, and one process at a time is measured on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_gpuperf.errors import ErrorId, RunError, UsageError
from pytest_gpuperf.model.environment import DeviceSlot
from pytest_gpuperf.runner.fork_server import Ended, Job
from pytest_gpuperf.runner.side_by_side import SideBySide, SlotJob, assigned


SEATS = (DeviceSlot(visible="0", board="a"), DeviceSlot(visible="1", board="b"))


class Server:
    """Jobs end in the order of their names; the one named ``dead`` cannot start."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._running: dict[int, str] = {}
        self._started = 0

    def start(self, job: Job, seconds: float) -> int:
        if job.entry == "dead":
            msg = "the measuring server died"
            raise RunError(msg, ErrorId.GP605)
        self._started += 1
        self.events.append(f"start {job.entry} ({seconds:g} s)")
        self._running[self._started] = job.entry
        return self._started

    def ended(self, seconds: float) -> Ended | None:
        assert seconds > 0
        number = min(self._running, key=lambda started: self._running[started])
        name = self._running.pop(number)
        self.events.append(f"end {name}")
        return number, f"answer of {name}"


class Turns:
    """A device that comes free after so many questions."""

    def __init__(self, refusals: int = 0) -> None:
        self._refusals = refusals
        self.is_held = False
        self.taken = 0

    def take(self) -> bool:
        assert not self.is_held
        if self._refusals:
            self._refusals -= 1
            return False
        self.is_held = True
        self.taken += 1
        return True

    def give_back(self) -> None:
        assert self.is_held
        self.is_held = False

    def close(self) -> None:
        """Nothing is open."""


def jobs(*named: Any) -> list[SlotJob]:
    return [
        SlotJob(job=Job(entry=name, request={}), seconds=9, slots=slots)
        for name, *rest in named
        for slots in [tuple(rest)]
    ]


def run(
    turns: Sequence[Turns], wanted: Sequence[SlotJob]
) -> tuple[list[str], list[object]]:
    server = Server()
    side_by_side = SideBySide(server, turns, lambda _: server.events.append("pause"))
    answers = side_by_side.run(wanted)
    return server.events, answers


def test_two_slots_measure_side_by_side_and_each_one_after_the_other() -> None:
    turns = (Turns(), Turns())

    events, answers = run(turns, jobs(("a", 0), ("b", 1), ("c", 0), ("d", 1)))

    assert events == [
        "start a (9 s)",
        "start b (9 s)",
        "end a",
        "start c (9 s)",
        "end b",
        "start d (9 s)",
        "end c",
        "end d",
    ]
    assert answers == ["answer of a", "answer of b", "answer of c", "answer of d"]
    assert [turn.taken for turn in turns] == [2, 2]
    assert not any(turn.is_held for turn in turns)


def test_a_slot_that_is_taken_does_not_hold_up_the_other() -> None:
    events, _ = run((Turns(refusals=1), Turns()), jobs(("a", 0), ("b", 1)))

    assert events == ["start b (9 s)", "end b", "start a (9 s)", "end a"]


def test_where_nothing_runs_a_taken_slot_is_asked_for_again_after_a_pause() -> None:
    events, _ = run((Turns(refusals=2),), jobs(("a", 0)))

    assert events == ["pause", "pause", "start a (9 s)", "end a"]


def test_a_job_on_all_slots_waits_for_them_and_who_comes_later_waits_for_it() -> None:
    turns = (Turns(), Turns(refusals=1))

    events, _ = run(turns, jobs(("a", 0), ("b", 1, 0), ("c", 0), ("d", 1)))

    assert events == [
        "start a (9 s)",
        "end a",
        "pause",
        "start b (9 s)",
        "end b",
        "start c (9 s)",
        "start d (9 s)",
        "end c",
        "end d",
    ]
    assert [turn.taken for turn in turns] == [3, 2]
    assert not any(turn.is_held for turn in turns)


def test_a_job_that_cannot_start_is_an_answer_and_frees_its_slot() -> None:
    turns = (Turns(),)

    _, answers = run(turns, jobs(("dead", 0), ("b", 0)))

    assert str(answers[0]) == "the measuring server died [GP605]"
    assert answers[1] == "answer of b"
    assert not turns[0].is_held


def test_a_slot_that_never_comes_free_leaves_no_other_held() -> None:
    class Never(Turns):
        def take(self) -> bool:
            msg = "in use"
            raise UsageError(msg, ErrorId.GP411)

    first = Turns()
    with pytest.raises(UsageError, match="GP411"):
        run((first, Never()), jobs(("a", 0), ("b", 1)))

    assert not first.is_held


def test_tests_go_to_the_board_of_their_baseline_the_rest_evenly() -> None:
    boards = {"old1": "b", "old2": "b", "moved": "of a GPU that is not here"}

    found = assigned(["old1", "old2", "new1", "new2", "moved"], SEATS, boards.get)

    assert found == {"old1": 1, "old2": 1, "new1": 0, "new2": 0, "moved": 0}


def test_new_tests_are_shared_out_in_turn() -> None:
    found = assigned(["a", "b", "c"], SEATS, lambda _: None)

    assert found == {"a": 0, "b": 1, "c": 0}


def test_slots_without_a_known_board_take_what_has_a_baseline_too() -> None:
    found = assigned(["a", "b"], (DeviceSlot(), DeviceSlot()), lambda _: "a")

    assert found == {"a": 0, "b": 1}


class Watch:
    """Writes what it is told among the server's events."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def started(self, index: int) -> None:
        self._events.append(f"told of {index}")

    def ended(self, index: int, answer: object) -> None:
        self._events.append(f"told the end of {index}")

    def waiting(self) -> None:
        self._events.append("told to wait")


def test_a_watch_is_told_before_each_start_and_behind_each_end() -> None:
    server = Server()
    side_by_side = SideBySide(server, (Turns(),), watch=Watch(server.events))

    side_by_side.run(jobs(("a", 0), ("dead", 0)))

    assert server.events == [
        "told of 0",
        "start a (9 s)",
        "end a",
        "told the end of 0",
        "told of 1",
        "told the end of 1",
    ]
