"""Whole runs on CUDA: a process that dies in any phase, two commits, a reference."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_virtual_clock")]

KILLED = "the measuring process was killed by signal 9"

PHASES = (
    "phases.run_first_step",
    "timing.warm_up",
    "timing.time_rounds",
    "timing.clock_under_load",
    "timing.time_isolated_steps",
    "memory.measure_memory",
    "profile.profile_with_lines",
    "phases.find_compilation",
)
"""All that run the step."""

DEATHS = """
import os, signal
from importlib import import_module
import pytest, torch

def step():
    torch.cuda._sleep(1_000_000)

def dying_in(phase):
    # with a kernel in the queue, and what the phase has switched on
    where, name = phase.split(".")
    module = import_module(f"pytest_gpuperf.measure.{where}")
    enter, inside = getattr(module, name), []

    def entered(*args, **options):
        inside.append(phase)
        return enter(*args, **options)

    def dies():
        step()
        if inside:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, entered)
    return dies

@pytest.mark.parametrize("phase", @PHASES@)
def test_dies(gpuperf, phase):
    gpuperf(dying_in(phase))

def test_lives(gpuperf):
    gpuperf(step)
"""

STEPS = """
import torch

def test_changed(gpuperf):
    gpuperf(lambda: torch.cuda._sleep({cycles}))

def test_unchanged(gpuperf):
    gpuperf(lambda: torch.cuda._sleep(4_000_000))
"""

FAST = STEPS.format(cycles=4_000_000)
SLOW = STEPS.format(cycles=4_400_000)


@dataclass(frozen=True)
class Project:
    """A repository with a test file."""

    path: Path

    def write(self, source: str) -> None:
        (self.path / "test_it.py").write_text(source, encoding="utf-8")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        # A reference is for those who change code: in CI nothing is recorded.
        return subprocess.run(
            command,
            cwd=self.path,
            env={name: os.environ[name] for name in os.environ if name != "CI"},
            capture_output=True,
            text=True,
            check=False,
        )

    def commit(self, source: str) -> None:
        self.write(source)
        self.run("git", "add", "--all").check_returncode()
        author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        self.run("git", *author, "commit", "--quiet", "-m", "x").check_returncode()

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        on = ("--gpuperf", "--gpuperf-device=cuda", "-p", "no:cacheprovider")
        return self.run(sys.executable, "-m", "pytest", *on, *arguments)

    def ab(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = (sys.executable, "-m", "pytest_gpuperf", "ab", "--device=cuda")
        return self.run(*program, *arguments)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Whether the package is installed or not, its plugin is the only one."""
    package = Path(__file__).parents[2]
    search = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", search)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text(".gpuperf\n__pycache__\n", encoding="utf-8")
    made = Project(tmp_path)
    made.run("git", "init", "--quiet", "--initial-branch=main").check_returncode()
    return made


def test_a_process_killed_in_any_phase_fails_its_own_test_alone(
    project: Project,
) -> None:
    project.write(DEATHS.replace("@PHASES@", repr(PHASES)))

    ran = project.pytest("-rf")

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout
    lines = ran.stdout.splitlines()
    failures = [line for line in lines if line.startswith("FAILED")]
    assert [p for p in PHASES if any(f"[{p}]" in f for f in failures)] == [*PHASES]
    assert len(failures) == len(PHASES)
    assert ran.stdout.count(KILLED) >= len(PHASES)
    assert f"{len(PHASES)} failed, 1 passed" in lines[-1], lines[-1]


TOO_LARGE = """
import torch

def test_too_large(gpuperf):
    gpuperf(lambda: torch.empty(2**50, dtype=torch.uint8, device="cuda"))
"""


def test_a_step_that_runs_out_of_memory_fails_with_the_allocator_s_summary(
    project: Project,
) -> None:
    project.write(TOO_LARGE)

    ran = project.pytest()

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout
    assert "CUDA memory" in ran.stdout
    assert "| Allocated memory" in ran.stdout


def test_ab_blames_the_commit_that_is_slower_and_only_the_test_that_it_slowed(
    project: Project,
) -> None:
    project.commit(FAST)
    project.commit(SLOW)

    ran = project.ab("HEAD~1", "HEAD")

    assert ran.returncode == 1, ran.stdout + ran.stderr
    table = [line.split() for line in ran.stdout.splitlines() if " step_ms " in line]
    verdicts = {row[-1]: row[0] for row in table}
    assert verdicts == {
        "test_it.py::test_changed": "slower",
        "test_it.py::test_unchanged": "same",
    }
    (changed,) = (row for row in table if row[0] == "slower")
    assert float(changed[4]) / float(changed[2]) == pytest.approx(1.1, rel=0.01)
