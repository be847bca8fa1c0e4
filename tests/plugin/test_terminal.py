"""What stands on the terminal, at each verbosity and in each kind of it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import Final

import pytest
from scripted_project import ON, ScriptedProject


RED: Final = "\x1b[31m"

THREE = """
def test_slow(gpuperf): gpuperf(int)
def test_ok(gpuperf): gpuperf(int)
@gpuperf.budget(ms=12)
def test_disturbed(gpuperf): gpuperf(int)
"""
COUNTS = "gpuperf: 1 failed (1 worse), 1 inconclusive, 1 passed on scripted"


@pytest.fixture
def three(project: ScriptedProject) -> ScriptedProject:
    """One test became slower, one cannot be decided, one passes."""
    project.file(THREE)
    project.record()
    disturbed = {"step_ms": 11.0, "disturbance": "the GPU is throttling"}
    project.script(
        {"test_slow": {"step_ms": 12.0}, "test_disturbed": disturbed, "*": {}}
    )
    return project


def ours(result: pytest.RunResult) -> list[str]:
    """Return the lines from our section, or from what stands for it, to the counts."""
    lines = result.outlines
    end = next(n for n, line in enumerate(lines) if line.startswith("gpuperf: "))
    starts = [n for n in range(end) if re.match("=+ gpuperf =+$", lines[n])]
    return lines[starts[-1] + 1 if starts else end : end + 1]


def names_in(lines: list[str]) -> list[str]:
    return [line.split("::")[-1] for line in lines if line.endswith(_NAMES)]


_NAMES: Final = ("::test_slow", "::test_ok", "::test_disturbed")


def test_every_test_has_a_row_worst_first_and_q_shows_less(
    three: ScriptedProject,
) -> None:
    rows = ours(three.run())
    quiet = ours(three.run("-q"))

    assert names_in(rows) == ["test_slow", "test_disturbed", "test_ok"]
    assert names_in(quiet) == ["test_slow", "test_disturbed"]
    assert rows[-1] == quiet[-1] == COUNTS
    assert ours(three.run("-qq")) == [COUNTS]
    assert ours(three.run("-q", "-k", "ok")) == ["gpuperf: 1 passed on scripted"]


def test_a_quiet_refresh_shows_the_new_values_and_a_silent_one_none(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")

    quiet = project.refresh("-q", which="all")
    silent = project.refresh("-qq", which="all")

    quiet.stdout.fnmatch_lines(
        ["refreshed baselines/scripted.json:", "10.00 ms  * test_it.py::test_step"]
    )
    quiet.stdout.no_fnmatch_line("noise: *")
    project.script({"*": {"step_ms": [10, 31, 14, 22, 40, 12, 18, 27]}})
    noisy = project.refresh("-q", which="drift")
    noisy.stdout.fnmatch_lines(
        ["noise: runs vary by 62 %; * slowdowns of 499 % or more,"]
    )
    assert [line for line in silent.outlines if "test_it.py::" in line] == []
    silent.stdout.fnmatch_lines(["gpuperf: 1 passed on scripted"])


def test_a_run_below_the_folder_of_the_baselines_says_that_it_saw_none(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.record()
    below = project.path / "tests"
    below.mkdir()
    (below / "test_below.py").write_text("def test_step(gpuperf): gpuperf(int)\n")
    (below / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(below)

    lost = project.run("-q").stdout.str().replace("\n   ", "")

    assert "saw no baselines, and there is a baselines/scripted.json in ..:" in lost


def test_a_setting_that_fails_a_test_puts_it_among_what_went_wrong(
    project: ScriptedProject,
) -> None:
    project.file(
        "def test_step(gpuperf):\n    gpuperf(int)\n    gpuperf(int, name='b')\n"
    )

    lenient = project.run("-q")
    strict = project.run("-q", "--override-ini=gpuperf_missing_baseline=fail")

    assert ours(lenient)[:-1] == []
    assert [line.split("::")[-1] for line in ours(strict) if "::" in line] == [
        "test_step",
        "test_step#b",
    ]


@pytest.mark.parametrize(
    ("option", "environment", "is_coloured"),
    [
        ((), {}, False),
        (("--color=yes",), {}, True),
        (("--color=no",), {"PY_COLORS": "1"}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_is_pytests_own_choice(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
    environment: dict[str, str],
    *,
    is_coloured: bool,
) -> None:
    for name in ("PY_COLORS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    project.file("@gpuperf.budget(ms=5)\ndef test_slow(gpuperf): gpuperf(int)\n")

    text = project.run(*option).stdout.str()

    assert (f"{RED}gpuperf: 1 failed" in text) is is_coloured
    assert ("\x1b" in text) is is_coloured


def on_a_terminal(project: ScriptedProject, *arguments: str) -> str:
    """Run pytest with a terminal as its output; return what was written there."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *ON, *arguments],
        cwd=project.path,
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
    )
    os.close(theirs)
    written = b"".join(iter(lambda: _read(mine), b""))
    process.wait()
    os.close(mine)
    return written.decode()


def _read(descriptor: int) -> bytes:
    """Read on until nobody has the terminal open, which Linux calls an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


PASSING = (
    "@gpuperf.budget(ms=12, mem_mb=900, syncs=0)\ndef test_ok(gpuperf): gpuperf(int)\n"
)
LIVE: Final = r"\rgpuperf: measuring 0/1 tests, run 1, \d+ s: test_it\.py::test_ok"


@pytest.fixture
def seen(project: ScriptedProject, monkeypatch: pytest.MonkeyPatch) -> ScriptedProject:
    """A project with one test that passes, run where a person looks."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    project.file(PASSING)
    return project


def screen_of(written: str) -> list[str]:
    """Return the lines that are left on the terminal, without colours."""
    lines = []
    for line in re.sub("\x1b\\[[0-9;]*m", "", written).split("\n"):
        shown = ""
        for part in line.rstrip("\r").split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


@pytest.mark.parametrize("option", ["-v", "-s"])
def test_progress_is_live_on_a_terminal_and_leaves_nothing(
    seen: ScriptedProject, option: str
) -> None:
    written = on_a_terminal(seen, option)

    assert re.search(LIVE, written)
    assert [line for line in screen_of(written) if "measuring" in line] == []
    assert screen_of(written)[-3].startswith("gpuperf: 1 passed on scripted")


def test_workers_leave_progress_to_their_controller(seen: ScriptedProject) -> None:
    pytest.importorskip("xdist")

    written = on_a_terminal(seen, "-p", "xdist.plugin", "-n2")

    shown = re.findall(LIVE, written)
    assert len(shown) == len(set(shown)) > 0
    assert [line for line in screen_of(written) if "measuring" in line] == []
