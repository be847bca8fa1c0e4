"""What others compute, read off files as Linux writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_gpuperf.devices.sentinels import others_ns, relatives


TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0

pytestmark = pytest.mark.skipif(not TICK_NS, reason="this system has no ticks")


def said(proc: Path, pid: int, parent: int, *ticks: int, name: str = "python") -> None:
    """Write what /proc says of a process: user, system, and those of ended children."""
    (proc / str(pid)).mkdir()
    times = " ".join(map(str, ticks))
    text = f"{pid} ({name}) S {parent} 1 1 0 -1 4194304 1 2 3 4 {times} 20 0 1 0 99"
    (proc / str(pid) / "stat").write_text(text)


def children_of(proc: Path, pid: int, by_thread: dict[int, str]) -> None:
    """Write which children each thread of a process has, as /proc says it."""
    for thread, children in by_thread.items():
        folder = proc / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "children").write_text(children)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "stat").write_text("cpu  500 20 30 9000 70 4 5 6 400 0\ncpu0 1 2 3\n")
    (tmp_path / "self").mkdir()
    return tmp_path


def test_what_neither_this_process_nor_its_descendants_took_is_the_others(
    proc: Path,
) -> None:
    said(proc, 1, 0, 50, 0, 0, 0)
    said(proc, os.getpid(), 1, 100, 10, 40, 5)
    said(proc, 500_000, os.getpid(), 200, 1, 0, 0, name="a (worker) of it")
    said(proc, 500_001, 500_000, 30, 0, 0, 0)
    said(proc, 500_002, 1, 33, 0, 0, 0)

    busy = 500 + 20 + 30 + 4 + 5 + 6
    own = 100 + 10 + 40 + 5 + 200 + 1 + 30
    assert others_ns(proc) == (busy - own) * TICK_NS


def test_no_process_but_its_own_is_asked_where_the_kernel_lists_children(
    proc: Path,
) -> None:
    me = os.getpid()
    said(proc, me, 1, 100, 10, 40, 5)
    said(proc, 500_000, me, 200, 1, 0, 0)
    said(proc, 500_001, 500_000, 30, 0, 0, 0)
    children_of(proc, me, {me: "", 500_100: "500000 "})
    children_of(proc, 500_000, {500_000: "500001 500009 "})  # one has just ended
    children_of(proc, 500_001, {500_001: ""})
    (proc / "500002").mkdir()
    (proc / "500002" / "stat").write_text("nobody may read this as numbers")

    own = 100 + 10 + 40 + 5 + 200 + 1 + 30
    assert others_ns(proc) == (565 - own) * TICK_NS


def test_a_process_that_ends_meanwhile_is_left_out(proc: Path) -> None:
    said(proc, os.getpid(), 1, 100, 0, 0, 0)
    (proc / "500000").mkdir()

    assert others_ns(proc) == (565 - 100) * TICK_NS


def test_relatives_are_those_above_and_below_and_no_siblings(proc: Path) -> None:
    me = os.getpid()
    said(proc, 1, 0)
    said(proc, 600_000, 1)
    said(proc, me, 600_000)
    said(proc, 600_001, me)
    said(proc, 600_002, 600_001)
    said(proc, 600_003, 600_000)

    assert relatives(proc) >= {me, 600_000, 600_001, 600_002}
    assert 600_003 not in relatives(proc)


def test_without_a_list_of_processes_there_are_no_relatives(tmp_path: Path) -> None:
    assert relatives(tmp_path / "none") == {os.getpid()}


@pytest.mark.parametrize("text", [None, "", "cpu 1 2\n", "cpu a b c d e f g h\n"])
def test_where_nobody_counts_it_is_unknown(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)

    assert others_ns(tmp_path) is None
