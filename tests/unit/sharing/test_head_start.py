"""A process gets ready beside the one that runs, but never beside what is timed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_gpuperf.sharing import head_start


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "line.lock"
    for place in head_start._place:
        os.close(place.lock)
    head_start._place.clear()


@contextmanager
def gate() -> Iterator[tuple[int, int]]:
    waits, opens = os.pipe()
    yield waits, opens
    os.close(opens)


def is_free(lock: Path, how: int) -> bool:
    """Whether another process of the line could lock it so."""
    with lock.open("ab") as other:
        try:
            fcntl.flock(other, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_what_is_timed_has_the_lock_alone_and_gives_it_back(lock: Path) -> None:
    head_start.enter_line(lock, None)
    before = is_free(lock, fcntl.LOCK_EX)

    with head_start.undisturbed():
        during = is_free(lock, fcntl.LOCK_SH)

    assert (before, during, is_free(lock, fcntl.LOCK_EX)) == (True, False, True)


def test_the_lock_is_given_back_if_what_is_timed_raises(lock: Path) -> None:
    head_start.enter_line(lock, None)

    with pytest.raises(RuntimeError), head_start.undisturbed():
        raise RuntimeError

    assert is_free(lock, fcntl.LOCK_EX)


def test_what_gets_ready_keeps_others_from_timing_until_it_is(lock: Path) -> None:
    with gate() as (waits, opens):
        head_start.enter_line(lock, waits)
        getting_ready = is_free(lock, fcntl.LOCK_EX)
        os.write(opens, b".")

        head_start.wait_for_turn()

    assert not getting_ready
    assert is_free(lock, fcntl.LOCK_EX)


def test_a_turn_is_waited_for_once(lock: Path) -> None:
    with gate() as (waits, opens):
        head_start.enter_line(lock, waits)
        os.write(opens, b".")

        head_start.wait_for_turn()
        head_start.wait_for_turn()


def test_outside_of_a_line_nothing_waits() -> None:
    head_start.wait_for_turn()
    with head_start.undisturbed():
        pass


def test_a_step_is_timed_all_the_same_where_a_test_has_closed_the_lock(
    lock: Path,
) -> None:
    head_start.enter_line(lock, None)
    os.close(head_start._place[0].lock)

    with head_start.undisturbed():
        assert is_free(lock, fcntl.LOCK_SH)

    head_start._place.clear()
