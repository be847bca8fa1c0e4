"""Bad input: one sentence that names what is wrong and the way out, nothing lost.

A wrong file or argument is a usage error (exit code 4) before anything is measured; a
wrong step fails its own test (exit code 1) and no other.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import entries_in
from scripted_project import ON, ScriptedProject


STEP = "def test_step(gpuperf): gpuperf(int)\n"
OTHERS = "@gpuperf.budget(ms=12)\ndef test_ok(gpuperf): gpuperf(int)\ndef test_plain(): pass\n"


WAY_OUT = (
    "restore the file from version control, or delete it and record it again with "
    "--gpuperf-update=all"
)
INTACT = "what was stored before is unchanged; solve that and run again"


def usage_error(result: pytest.RunResult) -> str:
    """The one line that a usage error is."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line]
    return line.removeprefix("ERROR: ")


def recorded(project: ScriptedProject) -> str:
    """Store a baseline of ``STEP``, and return it."""
    project.store("test_step")
    return project.baseline.read_text(encoding="utf-8")


TEST = "test_it.py::test_step"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda _: "", "the file is empty"),
        (lambda text: text[:-3], "the file is cut off at line 25"),
        (
            lambda text: text.replace('"step_ms": 10.0', '"step_ms": -10.0', 1),
            f"tests.{TEST}.anchor.step_ms: expected a time above 0, found -10.0",
        ),
    ],
    ids=["empty", "cut off", "a negative time"],
)
def test_a_broken_baseline_is_refused_before_anything_is_measured(
    project: ScriptedProject, change: Callable[[str], str], found: str
) -> None:
    broken = change(recorded(project))
    project.baseline.write_text(broken, encoding="utf-8")
    project.file(STEP + OTHERS)

    message = usage_error(project.refresh(which="all"))

    assert message == f"{project.baseline}: {found}; {WAY_OUT} [GP502]"
    assert project.baseline.read_text(encoding="utf-8") == broken
    assert not list(project.path.glob(".gpuperf/pending-*"))


def failing_in(
    folder: Path, code: int, real: Callable[..., object]
) -> Callable[..., object]:
    """Return *real*, failing with *code* for the draft of a file in *folder*."""

    def is_draft(place: Path | int) -> bool:
        if isinstance(place, Path):
            return place.parent == folder and place.suffix == ".tmp"
        return any(folder.glob(".*.tmp"))

    def act(place: Path | int, *arguments: object, **keywords: object) -> object:
        if is_draft(place):
            raise OSError(code, os.strerror(code))
        return real(place, *arguments, **keywords)

    return act


@pytest.mark.parametrize(
    ("owner", "name", "code", "cause"),
    [
        (os, "fsync", errno.ENOSPC, "no space left on device"),
        (Path, "open", errno.EACCES, "permission denied"),
        (Path, "replace", errno.EIO, "input/output error"),
    ],
)
def test_baselines_that_cannot_be_written_fail_their_tests_and_lose_nothing(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    code: int,
    cause: str,
) -> None:
    old = recorded(project)
    project.script({"test_step": {"step_ms": 12.0}, "*": {"step_ms": 10.0}})
    project.file(STEP + OTHERS + "def test_own(gpuperf): assert 0, 'my own'\n")
    broken = failing_in(project.baseline.parent, code, getattr(owner, name))
    monkeypatch.setattr(owner, name, broken)

    result = project.refresh("--deselect=test_it.py::test_ok", which="drift")

    result.assert_outcomes(failed=2, passed=1, deselected=1)
    assert "E   AssertionError: my own" in [line.rstrip() for line in result.outlines]
    assert "gpuperf: 1 failed (1 worse) on scripted" in result.stdout.str()
    pending = project.path / ".gpuperf" / "pending-scripted.json"
    assert (
        f"{project.baseline}: cannot be written, {cause}; {INTACT}; what was measured "
        f"is in {pending} [GP506]"
    ) in result.outlines
    assert project.baseline.read_text(encoding="utf-8") == old
    assert [path.name for path in project.baseline.parent.iterdir()] == [
        "scripted.json"
    ]
    measured = entries_in(pending)
    assert list(measured) == ["test_it.py::test_step"]
    assert [
        run["times"]["step_ms"]["q25"]
        for run in measured["test_it.py::test_step"]["runs"]
    ] == [12.0] * 8


def test_a_gate_judges_where_it_can_write_nothing(project: ScriptedProject) -> None:
    (project.path / ".gpuperf").write_text("mine", encoding="utf-8")
    project.file("@gpuperf.budget(ms=5)\n" + STEP + OTHERS)

    result = project.run()

    result.assert_outcomes(failed=1, passed=2)
    said = "cannot be created, file exists; rename the file [GP506]"
    assert result.outlines.count(f"gpuperf: {project.path}/.gpuperf: {said}") == 1
    assert (project.path / ".gpuperf").read_text(encoding="utf-8") == "mine"


RAISES = """
def fails_on(call):
    calls = []
    def step():
        calls.append(1)
        if len(calls) == call:
            raise ValueError(f"call {call}") from KeyError("batch")
    return step
"""


def test_a_step_that_raises_shows_its_own_traceback_and_harms_no_other_test(
    project: ScriptedProject,
) -> None:
    project.file(
        f"""{RAISES}
def test_first(gpuperf): gpuperf(fails_on(1))
def test_late(gpuperf): gpuperf(fails_on(30))
def test_setup(gpuperf): gpuperf(lambda: 1, setup=lambda: 2)
{OTHERS}"""
    )

    result = project.run()

    result.assert_outcomes(failed=3, passed=2)
    for call in (1, 30):
        result.stdout.fnmatch_lines(
            [
                "KeyError: 'batch'",
                "The above exception was the direct cause of the following exception:",
                f">*gpuperf(fails_on({call}))",
                "test_it.py:*: ",
                '>           raise ValueError(f"call {call}") from KeyError("batch")',
                f"E           ValueError: call {call}",
                "test_it.py:9: ValueError",
            ]
        )
    result.stdout.fnmatch_lines(["E *TypeError: *() takes 0 positional arguments *"])
    result.stdout.no_fnmatch_line("*pytest_gpuperf/*: in *")
    assert (
        "gpuperf: 1 passed on scripted; without a verdict: 3 failed; 2 metrics without baseline"
    ) in result.outlines


LIMITED = (
    "ms, latency_ms, mem_mb, syncs, pageable_copies, launches and 15 more "
    "(docs/reference/marks.md)"
)


UNKNOWN = f"gpuperf.budget() does not know foo; it knows {LIMITED} [GP201]"
NO_KEYWORD = "gpuperf_budget takes keywords only, found (12,) [GP208]"
RANKS = "gpuperf.ranks() does not know gpus; it knows n, timeout_s [GP201]"


@pytest.mark.parametrize(
    ("mark", "message", "arguments"),
    [
        ("gpuperf_budget(foo=1)", UNKNOWN, ()),
        ("gpuperf_budget(foo=1)", UNKNOWN, ON),
        ("gpuperf_budget(foo=1)", UNKNOWN, ("-p", "xdist.plugin", "-n2")),
        ("gpuperf_budget(12)", NO_KEYWORD, ("--co",)),
        ("gpuperf_ranks(n=2, gpus=4)", RANKS, ()),
    ],
)
def test_a_wrong_mark_is_refused_at_collection_however_it_was_made(
    project: ScriptedProject, mark: str, message: str, arguments: tuple[str, ...]
) -> None:
    if "-n2" in arguments:
        pytest.importorskip("xdist")
    project.file(f"@pytest.mark.{mark}\n{STEP}{OTHERS}")

    result = project.pytester.runpytest_inprocess(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    at = result.outlines.index(f"test_it.py::test_step: {message}")
    assert result.outlines[at - 1].strip("_ ").startswith("ERROR collecting ")
    assert result.outlines[at + 1] == "  --> test_it.py:3 in test_step"


def test_an_error_at_collection_that_is_not_ours_keeps_its_exit_status(
    project: ScriptedProject,
) -> None:
    project.file(f"import no_such_module\n{STEP}")

    result = project.run()

    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_step_of_four_minutes_is_cut_short_by_the_time_cap_and_says_so(
    project: ScriptedProject,
) -> None:
    project.script({"test_step": {"step_ms": 240_000}, "*": {"step_ms": 10.0}})
    project.file("@gpuperf.budget(syncs=0)\n" + STEP + OTHERS)

    result = project.run()

    result.assert_outcomes(passed=3, warnings=1)
    assert (
        "syncs: syncs=0 was not checked: the time cap was reached before this phase; "
        "raise --gpuperf-seconds"
    ) in " ".join(result.stdout.str().split())
    project.run("--gpuperf-strict").assert_outcomes(failed=1, passed=2)
    project.run("--gpuperf-seconds=2000").assert_outcomes(passed=3)


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_a_gpu_runner_that_lost_its_gpu_is_red(
    project: ScriptedProject, without_cuda: None
) -> None:
    project.file(STEP)

    message = usage_error(
        project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cuda")
    )

    asked, reason = message.split(": ", maxsplit=1)
    assert re.sub(r"torch \S+", "torch X", asked) == (
        "--gpuperf-device=cuda was asked for, but torch X sees no CUDA device"
    )
    assert reason
