"""Processes of ranks: each is heard, asked where it is, and ended with all it started."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from process_fifo import ProcessFifo
from rank_jobs import PORT

from pytest_gpuperf.errors import RunError
from pytest_gpuperf.runner.fork_server import ForkServer, Job


ENOUGH_SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with closing(ForkServer(("pytest_gpuperf.distributed.processes",))) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture
def process_fifo(tmp_path: Path) -> Iterator[ProcessFifo]:
    with closing(ProcessFifo(tmp_path / "fifo")) as process_fifo:
        yield process_fifo


def ends_of(server: ForkServer, work: str, **request: object) -> list[dict[str, Any]]:
    job = Job(entry="rank_jobs:two_ranks", request={"work": work, **request})
    ends: list[dict[str, Any]] = server.run(job, ENOUGH_SECONDS)
    return ends


def test_each_rank_leads_a_session_and_all_it_says_is_heard(server: ForkServer) -> None:
    ends = ends_of(server, "report")

    assert [end["code"] for end in ends] == [0, 0]
    for rank, end in enumerate(ends):
        first, second = end["said"]
        assert {**first, "at": None} == {
            "rank": rank,
            "port": PORT,
            "leads": True,
            "at": None,
        }
        assert second["text"] == "é" * 100_000


def test_when_a_rank_fails_the_other_is_asked_where_it_is_and_killed(
    server: ForkServer,
) -> None:
    stuck, failed = ends_of(server, "fail")

    assert (stuck["code"], failed["code"]) == (None, 1)
    assert " in never\n" in stuck["stack"]
    assert " in fail\n" in stuck["stack"]
    assert failed["output"].splitlines()[0] == "said before"
    assert failed["output"].splitlines()[-1] == "ValueError: found 3, expected 4"


def test_a_crash_leaves_its_stack(server: ForkServer) -> None:
    stuck, crashed = ends_of(server, "crash")

    assert (stuck["code"], crashed["code"]) == (None, -signal.SIGSEGV)
    assert crashed["stack"].splitlines()[0] == "Fatal Python error: Segmentation fault"
    assert " in crash\n" in crashed["stack"]
    assert " in never\n" in stuck["stack"]


@pytest.mark.parametrize("ended_by", [{"timeout_s": 3.0}, {"elsewhere": True}])
def test_ranks_that_wait_are_asked_and_killed_when_time_is_up_or_one_fails_elsewhere(
    server: ForkServer, ended_by: dict[str, Any]
) -> None:
    ends = ends_of(server, "stay", **ended_by)

    assert [end["code"] for end in ends] == [None, None]
    assert all(" in never\n" in end["stack"] for end in ends)


def test_what_a_rank_started_ends_with_it(
    server: ForkServer, process_fifo: ProcessFifo
) -> None:
    ends = ends_of(server, "leave_a_child", fifo=process_fifo.fifo)

    assert [end["code"] for end in ends] == [0, 0]
    assert process_fifo.has_heard()
    assert process_fifo.all_ended()


@pytest.mark.parametrize(
    "name",
    [
        "two_ranks_whose_parent_dies",
        pytest.param(
            "a_rank_with_a_child_whose_parent_dies",
            marks=pytest.mark.skipif(
                sys.platform != "linux", reason="nobody adopts orphans there"
            ),
        ),
    ],
)
def test_ranks_end_when_the_process_that_started_them_is_killed(
    server: ForkServer, process_fifo: ProcessFifo, tmp_path: Path, name: str
) -> None:
    job = Job(
        entry=f"rank_jobs:{name}",
        request={"fifo": process_fifo.fifo, "folder": str(tmp_path)},
    )

    with pytest.raises(RunError) as died:
        server.run(job, ENOUGH_SECONDS)

    assert str(died.value).startswith("the measuring process was killed by signal 9")
    assert process_fifo.all_ended()
