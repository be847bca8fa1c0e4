"""What a measured test leaves running or lying about is gone before it can do harm."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from process_fifo import ProcessFifo
from scripted_project import ON, ScriptedProject

from pytest_gpuperf.devices.process_time import PROC, children
from pytest_gpuperf.errors import RunError, UsageError
from pytest_gpuperf.files import scratch_folder
from pytest_gpuperf.runner import fork_server_process
from pytest_gpuperf.runner.fork_server import ForkServer, Job


SECONDS = 60.0
PATIENCE_SECONDS = 600.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")


def job(name: str, **request: object) -> Job:
    return Job(entry=f"leaving_jobs:{name}", request=request)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with closing(ForkServer(("leaving_jobs",))) as server:
        server.wait_until_ready()
        yield server


@pytest.fixture
def process_fifo(tmp_path: Path) -> Iterator[ProcessFifo]:
    with closing(ProcessFifo(tmp_path / "fifo")) as process_fifo:
        yield process_fifo


@linux
@pytest.mark.parametrize(
    "leave",
    [
        pytest.param("leave_a_session", id="a program in its own session"),
        pytest.param("leave_a_deaf_session", id="one that ignores SIGTERM"),
        pytest.param("leave_a_stopped_one", id="one that is stopped"),
        pytest.param("leave_a_family", id="one with a child in another session"),
        pytest.param("leave_a_daemon", id="a daemon that forked twice"),
        pytest.param("leave_a_silent_fork", id="a fork without exec"),
    ],
)
def test_a_process_that_a_job_left_has_ended_before_the_next_one_can_start(
    server: ForkServer, process_fifo: ProcessFifo, leave: str
) -> None:
    assert server.run(job(leave, fifo=process_fifo.fifo), SECONDS) == "done"

    assert process_fifo.all_ended(seconds=0)


@linux
@pytest.mark.parametrize("leave", ["leave_and_crash", "leave_and_exit"])
def test_it_has_ended_as_well_where_the_job_died(
    server: ForkServer, process_fifo: ProcessFifo, leave: str
) -> None:
    with pytest.raises(RunError):
        server.run(job(leave, fifo=process_fifo.fifo), SECONDS)

    assert process_fifo.all_ended(seconds=0)


@linux
def test_what_is_left_when_the_server_ends_ends_with_it(
    process_fifo: ProcessFifo, tmp_path: Path
) -> None:
    until = tmp_path / "until"
    os.mkfifo(until)
    with closing(ForkServer(("leaving_jobs",))) as server:
        server.wait_until_ready()
        server._start(
            job("have_a_daemon_and_wait", fifo=process_fifo.fifo, until=str(until)),
            SECONDS,
        )
        waiting = until.open("w", encoding="utf-8")  # opens when the daemon is there

    assert process_fifo.all_ended(seconds=0)
    waiting.close()


def test_a_system_without_proc_has_no_orphans_to_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fork_server_process, "PROC", tmp_path / "none")

    assert fork_server_process._unended(()) == []


def test_nobody_is_waited_for_where_nobody_is_left() -> None:
    waits: list[float] = []
    own = map(int, children(PROC / str(os.getpid())))

    fork_server_process.end_orphans(list(own), waits.append)

    assert waits == []


BLOCKED = """
import os
def test_step(gpuperf):
    def step():
        with open("server", "w") as fifo:
            fifo.write(str(os.getppid()))
        os.read(os.pipe()[0], 1)
    gpuperf(step)
"""


@linux
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name
)
def test_a_run_that_is_ended_by_a_signal_leaves_no_temporary_folder(
    project: ScriptedProject, number: signal.Signals
) -> None:
    project.file(BLOCKED)
    folder = project.path / "temporary"
    folder.mkdir()
    os.mkfifo(project.path / "server")
    started = _pytest_in(project.path, TMPDIR=str(folder))
    server = int((project.path / "server").read_text())
    watched = os.pidfd_open(server)
    assert _ours(folder)

    started.send_signal(number)
    started.wait(PATIENCE_SECONDS)
    ended, _, _ = select.select([watched], [], [], PATIENCE_SECONDS)

    assert ended == [watched]
    assert _ours(folder) == []


WAITING = """
import os
os.write(os.open({fifo!r}, os.O_WRONLY), b"!")
os.read(os.pipe()[0], 1)
"""

CLIENT = """
import sys
from pytest_gpuperf.runner.fork_server import ForkServer
sys.path.insert(0, sys.argv[1])
ForkServer(("waiting",)).wait_until_ready()
"""


@linux
def test_a_server_that_still_imports_when_its_client_is_killed_leaves_no_folder(
    process_fifo: ProcessFifo, tmp_path: Path
) -> None:
    (tmp_path / "waiting.py").write_text(WAITING.format(fifo=process_fifo.fifo))
    folder = tmp_path / "temporary"
    folder.mkdir()

    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(folder)},
    ) as client:
        assert process_fifo.has_heard()
        assert _ours(folder)
        client.kill()

    assert process_fifo.all_ended()
    assert _ours(folder) == []


OWNER = """
import sys
from pytest_gpuperf.files import scratch_folder
folder = scratch_folder()
print(folder.name, flush=True)
sys.stdin.read()
"""
ORPHAN = """
import sys
from pytest_gpuperf.files import OWNER_LOCK, hold
hold(f"{sys.argv[1]}/{OWNER_LOCK}")
print(flush=True)
sys.stdin.read()
"""
CHECKS = """
import sys
from pytest_gpuperf.compare_commits.checkouts import main
sys.argv[1:] = ["[]"]
main()
"""


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_else(
    tmp_path: Path,
) -> None:
    def started(program: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        return process, Path(said).name.partition('"')[0]

    for name in ("gpuperf-mine", "gpuperf-1000"):
        (tmp_path / name).mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner.lock").touch()
    (tmp_path / "gpuperf-link").symlink_to(elsewhere)
    foreign = {path.name for path in tmp_path.iterdir()}
    (killed, left), (alive, used) = started(OWNER), started(OWNER)
    (parent, needed) = started(OWNER)
    (guardian, checked_out), (other, compared) = started(CHECKS), started(CHECKS)
    orphan, _ = started(ORPHAN, str(tmp_path / needed))
    for process in (killed, parent, guardian):
        process.kill()
        process.communicate()
    assert (tmp_path / left).exists()
    assert (tmp_path / checked_out).exists()

    last, own = started(OWNER)

    there = {path.name for path in tmp_path.iterdir()}
    assert there == foreign | {used, needed, own, compared}
    for process in (alive, orphan, last, other):
        process.communicate("")
    assert {path.name for path in tmp_path.iterdir()} == foreign | {needed}


def test_a_server_whose_client_died_before_it_could_know_leaves_no_folder(
    tmp_path: Path,
) -> None:
    """Nobody reads that it is ready, and its input has ended."""
    folder = tmp_path / "gpuperf-scratch"
    folder.mkdir()
    reader, writer = os.pipe()
    os.close(reader)

    subprocess.run(
        [sys.executable, "-c", SERVER, str(folder)],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)

    assert not folder.exists()


SERVER = """
import sys
from pytest_gpuperf.runner.fork_server_process import main
order = {"preload": [], "warm": None, "relocation": None, "progress": None, "packages": {}}
main({**order, "folder": sys.argv[1]})
"""


def _pytest_in(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *ON],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _ours(folder: Path) -> list[str]:
    return [
        path.name for path in folder.iterdir() if not path.name.startswith("pytest")
    ]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_each_reason_for_it_is_said(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)

    with pytest.raises(UsageError) as refused:
        scratch_folder()

    assert str(refused.value) == (
        f"no temporary folder can be made, {os.strerror(number).lower()}; set TMPDIR to "
        "a folder that can be written to [GP614]"
    )
