"""Several processes: two runs at once, Ctrl-C, a pytest that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from process_fifo import PATIENCE_SECONDS, ProcessFifo, hear_ctrl_c
from scripted_project import ON, ScriptedProject

from pytest_gpuperf.runner.fork_server import ForkServer


HANGS = """
import os
def never():
    os.read(os.pipe()[0], 1)
def step():
    os.write(os.open("fifo", os.O_WRONLY), b"!")
    os.fork()
    never()
def test_hangs(gpuperf): gpuperf(step)
def test_plain(): pass
"""
"""Two processes hold the FIFO open for as long as they live."""

ORPHAN_SECONDS = 2.0
"""How long a child may outlive the pytest that was killed."""


@pytest.fixture
def process_fifo(project: ScriptedProject) -> Iterator[ProcessFifo]:
    with closing(ProcessFifo(project.path / "fifo")) as process_fifo:
        yield process_fifo


def started(
    project: ScriptedProject, *arguments: str, on: tuple[str, ...] = ON
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *on, *arguments],
        cwd=project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - this process has no threads
    )


def output_after(process: subprocess.Popen[str], number: signal.Signals) -> str:
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return output


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["alone", "-n2"])
def test_ctrl_c_ends_every_process_and_leaves_the_baseline(
    project: ScriptedProject,
    process_fifo: ProcessFifo,
    temporary: Path,
    workers: tuple[str, ...],
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.refresh().assert_outcomes(passed=1)
    old = project.baseline.read_bytes()
    project.file(HANGS)

    with started(project, "--gpuperf-update=all", *workers) as process:
        assert process_fifo.has_heard()
        output = output_after(process, signal.SIGINT)

    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert process_fifo.all_ended(ORPHAN_SECONDS)
    assert "KeyboardInterrupt" in output
    assert project.baseline.read_bytes() == old
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, pytest.ExitCode.INTERRUPTED),
        pytest.param(
            signal.SIGKILL,
            -signal.SIGKILL,
            marks=pytest.mark.skipif(
                sys.platform != "linux",
                reason="only Linux ends a child with its parent",
            ),
        ),
    ],
)
def test_nothing_outlives_a_pytest_that_ends_while_torch_is_imported(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    process_fifo: ProcessFifo,
    number: signal.Signals,
    code: int,
) -> None:
    (project.path / "torch.py").write_text(
        "import os\nos.write(os.open('fifo', os.O_WRONLY), b'!')\n"
        "os.read(os.pipe()[0], 1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    project.file(HANGS)

    with started(project, on=("--gpuperf", "--gpuperf-device=cpu")) as process:
        assert process_fifo.has_heard()
        output_after(process, number)

    assert process.returncode == code
    assert process_fifo.all_ended(ORPHAN_SECONDS)


AT_ONCE = """
import os
def test_one(gpuperf): gpuperf(lambda: None, setup=lambda: meet(os.O_WRONLY))
def test_two(gpuperf): gpuperf(lambda: None, setup=lambda: meet(os.O_RDONLY))
met = []
def meet(side):
    if not met:
        met.append(os.close(os.open("meeting", side)))
"""
"""Opening a FIFO waits for the other side: each run of one waits for one of the other."""


def test_two_runs_that_write_at_once_lose_nothing(project: ScriptedProject) -> None:
    project.file("def test_old(gpuperf): gpuperf(int)\n")
    project.refresh().assert_outcomes(passed=1)
    os.mkfifo(project.path / "meeting")
    project.file(AT_ONCE)

    names = ("test_one", "test_two")
    runs = [started(project, "-k", name, "--gpuperf-update=all") for name in names]
    outputs = [run.communicate(timeout=PATIENCE_SECONDS)[0] for run in runs]

    assert [run.returncode for run in runs] == [0, 0], outputs
    assert set(project.entries()) == {
        f"test_it.py::test_{n}" for n in ("old", "one", "two")
    }
    assert [len(entry["runs"]) for entry in project.entries().values()] == [8, 8, 8]


def test_a_project_that_makes_errors_of_warnings_is_measured(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pytest finds the plugin by itself it wants to rewrite its assertions."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_PLUGINS")
    project.file("def test_step(gpuperf): gpuperf(int)\n")

    warnings = ("-W", "error::pytest.PytestAssertRewriteWarning")
    with started(project, "-p", "no:benchmark", *warnings) as process:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == pytest.ExitCode.OK, output


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def test_step(gpuperf): pass\n1 / 0\n", id="a file is broken"),
        pytest.param("def measured(gpuperf): pass\n", id="what takes it is no test"),
    ],
)
def test_a_server_that_is_not_needed_after_all_leaves_no_process_and_no_folder(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    launch = ForkServer._launch

    def launched(self: ForkServer, *given: Any) -> subprocess.Popen[bytes]:
        started.append(launch(self, *given))
        return started[-1]

    monkeypatch.setattr(ForkServer, "_launch", launched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    project.file(source + "def test_plain(): pass\n")

    project.run()

    assert len(started) == 1
    assert all(process.returncode is not None for process in started)
    assert not list(tmp_path.glob("gpuperf-*"))
