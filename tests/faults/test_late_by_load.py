"""What never ends is ended and named; what only waits for a core is waited for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from late_jobs import LOOP

from pytest_gpuperf.errors import RunError
from pytest_gpuperf.runner import fork_server
from pytest_gpuperf.runner.fork_server import ForkServer, Job


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="only Linux says how long threads waited"
    ),
]

SECONDS = 1.0

BURNERS = 3

NOTHING = (
    r"it did nothing for most of [\d.]+ s \([\d.]+ s of CPU\); does it wait for input"
)

CPU = r"it used [\d.]+ s of CPU in [\d.]+ s; does it loop for ever\?"


def job(name: str, **request: object) -> Job:
    return Job(entry=f"late_jobs:{name}", request=request)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with closing(ForkServer(("late_jobs",))) as server:
        server.wait_until_ready()
        yield server


WAITING = "sleep wait_for_input wait_for_a_lock wait_for_many_threads be_stopped poll"
COMPUTING = (
    "loop loop_in_a_thread loop_in_a_child loop_in_a_session_of_its_own "
    "loop_in_children_of_every_core"
)


@pytest.mark.parametrize("never_ends", f"{WAITING} {COMPUTING}".split())
def test_what_never_ends_is_ended_and_named(
    server: ForkServer, never_ends: str
) -> None:
    reason = NOTHING if never_ends in WAITING.split() else CPU

    with pytest.raises(RunError) as refused:
        server.run(job(never_ends), SECONDS)

    assert re.search(reason, refused.value.text), refused.value.text


def test_a_server_that_is_stopped_at_its_start_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "START_SECONDS", SECONDS)
    with closing(ForkServer(("late_jobs",))) as server:
        os.kill(server._process.pid, signal.SIGSTOP)
        with pytest.raises(
            RunError, match="could not start: it did nothing for most of"
        ):
            server.wait_until_ready()


def test_a_server_that_is_stopped_later_is_given_up_job_by_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "KILL_SECONDS", SECONDS)
    with closing(ForkServer(("late_jobs",))) as server:
        server.wait_until_ready()
        os.kill(server._process.pid, signal.SIGSTOP)
        with pytest.raises(RunError, match="gave no result and was killed"):
            server.run(job("poll"), SECONDS)
        os.kill(server._process.pid, signal.SIGCONT)


@contextmanager
def burning(core: int) -> Iterator[None]:
    """Let other programs compute on *core*."""
    code = f"import os; os.sched_setaffinity(0, {{{core}}})\n{LOOP}"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(BURNERS)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_what_takes_three_times_as_long_because_of_others_is_waited_for(
    server: ForkServer,
) -> None:
    core = min(os.sched_getaffinity(0))
    with burning(core):
        needed = job("compute_on_a_busy_core", core=core, cpu_s=0.8 * SECONDS)
        took_s = server.run(needed, SECONDS)

    assert took_s > SECONDS
