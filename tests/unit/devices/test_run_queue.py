"""How long threads waited for a core, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_gpuperf.devices.sentinels import family_wait_ns
from pytest_gpuperf.measure.timing import unwaited_ns_of


ME = str(os.getpid())


def thread(
    proc: Path, process: str, number: int, waited_ns: int, children: str
) -> None:
    folder = proc / process / "task" / str(number)
    folder.mkdir(parents=True)
    (folder / "schedstat").write_text(f"111 {waited_ns} 3\n")
    (folder / "children").write_text(children)


def test_the_waiting_of_all_threads_and_descendants_is_added_up(tmp_path: Path) -> None:
    thread(tmp_path, ME, 10, 1_000, "20 21 ")
    thread(tmp_path, ME, 11, 200, "")
    thread(tmp_path, "20", 20, 30, "40 ")
    thread(tmp_path, "21", 21, 4, "")
    thread(tmp_path, "40", 40, 50_000, "")

    assert family_wait_ns(tmp_path) == 51_234


def test_a_process_that_has_just_ended_counts_nothing(tmp_path: Path) -> None:
    thread(tmp_path, ME, 10, 7, "20 ")

    assert family_wait_ns(tmp_path) == 7


@pytest.mark.parametrize(
    "schedstat", ["", "1", "1 x 2"], ids=["empty", "short", "words"]
)
def test_where_the_kernel_keeps_no_count_nothing_is_known(
    tmp_path: Path, schedstat: str
) -> None:
    thread(tmp_path, ME, 10, 7, "")
    (tmp_path / ME / "task" / "10" / "schedstat").write_text(schedstat)

    assert family_wait_ns(tmp_path) is None
    assert family_wait_ns(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        pytest.param(5, 25, 80, id="what was waited is taken off"),
        pytest.param(5, 5, 100, id="nothing waited"),
        pytest.param(5, 500, 0, id="several waited at once, for longer than it took"),
        pytest.param(None, None, 60, id="not counted: CPU time at most"),
        pytest.param(None, 25, 60, id="not counted before"),
    ],
)
def test_what_is_left_of_a_time_without_waiting(
    before: int | None, after: int | None, left: int
) -> None:
    assert unwaited_ns_of(before, after, 100, 60) == left
