"""Failures that are warnings by ``gpuperf_warn``: always, or until a day."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.cli import main


STEP: Final = "def test_step(gpuperf): gpuperf(int)\n"
OVER: Final = "@gpuperf.budget(ms=5)\n" + STEP
WARN: Final = ("-o", "gpuperf_warn=until 2027-01-15")
UNTIL: Final = "failures are warnings until 2027-01-15"
WOULD: Final = "would have failed"
TEST: Final = "test_it.py::test_step"


@pytest.fixture(autouse=True)
def _day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pytest_gpuperf.plugin.parse_settings.today", lambda: "2027-01-15"
    )


@pytest.fixture
def next_day(_day: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pytest_gpuperf.plugin.parse_settings.today", lambda: "2027-01-16"
    )


def test_until_the_last_day_a_failure_is_a_warning_with_its_whole_text(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})
    project.file(OVER)

    result = project.run("-v", *WARN)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            f"{TEST} WARNED*",
            f"*GpuperfWarning: {WOULD}: OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms",
            "*  limit    is set in the test's budget*",
            f"*OVER LIMIT ms*{TEST}",
            f"gpuperf: 1 {WOULD} (1 over limit) on scripted ({UNTIL})*",
            f"*1 warning, 1 {WOULD} in *",
        ]
    )


def test_after_the_last_day_it_fails_and_the_key_can_go(
    project: ScriptedProject, next_day: None
) -> None:
    project.file(OVER + STEP.replace("step", "other"))

    result = project.run(*WARN)

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms",
            "gpuperf: 1 failed*(gpuperf_warn ended on 2027-01-15: remove it)*",
        ]
    )
    result.stdout.no_fnmatch_line(f"*{WOULD}*")


def test_true_has_no_last_day_and_a_run_without_failures_says_so_too(
    project: ScriptedProject,
) -> None:
    project.file(OVER.replace("ms=5", "ms=50"))

    result = project.run("-o", "gpuperf_warn=true")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpuperf: 1 * on scripted (failures are warnings)*"])
    project.file(OVER)
    assert project.run("-o", "gpuperf_warn=false").ret == pytest.ExitCode.TESTS_FAILED


WORSE: Final = {"step_ms": 12.0, "syncs": 1}
UNCLEAR: Final = {"step_ms": 12.0, "disturbance": "the GPU is throttling"}


def test_what_is_judged_by_a_baseline_is_a_warning(project: ScriptedProject) -> None:
    project.file(STEP + STEP.replace("step", "unclear"))
    project.store("test_step", "test_unclear")
    project.script({"test_step": WORSE, "test_unclear": UNCLEAR})

    warned = project.run(*WARN, "--gpuperf-strict")

    assert warned.ret == pytest.ExitCode.OK
    warned.stdout.fnmatch_lines([f"*2 warnings, 2 {WOULD} in *"])


def test_in_ci_a_missing_baseline_is_a_warning_and_so_is_one_that_nothing_measures(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.file(
        "def test_step(gpuperf):\n    gpuperf(int)\n    gpuperf(int, name='b')\n"
    )
    project.record()
    monkeypatch.setenv("CI", "true")
    project.file(STEP + STEP.replace("step", "new"))

    warned = project.run(*WARN)

    assert warned.ret == pytest.ExitCode.OK
    warned.stdout.fnmatch_lines(["gpuperf: *1 STORED AND NOT MEASURED*"])
    assert project.run().ret == pytest.ExitCode.TESTS_FAILED


def test_counts_that_moved_with_torch_are_a_warning_of_the_run(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": 10.0}, "software": {"torch": "2.6.0"}})
    project.file(STEP)
    project.record()
    moved = {"step_ms": 10.0, "syncs": 1}
    project.script({"*": moved, "software": {"torch": "2.7.0"}})

    warned, failed = project.run(*WARN), project.run()

    assert (warned.ret, failed.ret) == (0, pytest.ExitCode.TESTS_FAILED)
    warned.stdout.fnmatch_lines([f"gpuperf: the run {WOULD}: torch 2.6.0 -> 2.7.0*"])


FAILS_ITSELF: Final = """
import os
def test_raises(gpuperf):
    gpuperf(int, ms=5)
    assert False
def test_dies(gpuperf): os._exit(3)
def test_never_calls(gpuperf): pass
@pytest.mark.xfail(strict=True)
@gpuperf.budget(ms=50)
def test_passes_against_its_mark(gpuperf): gpuperf(int)
@pytest.mark.xfail(strict=True)
@gpuperf.budget(ms=5)
def test_is_expected_to_fail(gpuperf): gpuperf(int)
def test_plain(): assert False
"""


def test_what_no_verdict_fails_fails_as_before(project: ScriptedProject) -> None:
    project.file(FAILS_ITSELF)

    project.run(*WARN).assert_outcomes(failed=5, xfailed=1)


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n2")], ids=str)
def test_a_warning_ends_no_run_that_stops_at_the_first_failure(
    project: ScriptedProject, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    project.file(OVER + OVER.replace("step", "other"))

    result = project.run("-x", *workers, *WARN)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"gpuperf: 2 {WOULD} (2 over limit) on scripted*"])


def test_nothing_is_run_again_for_a_warning_and_no_debugger_opens(
    project: ScriptedProject,
) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.file(OVER)

    again = project.run("-p", "rerunfailures", "--reruns=2", *WARN)
    debugged = project.run("--pdb", *WARN)

    assert (again.ret, debugged.ret) == (pytest.ExitCode.OK, pytest.ExitCode.OK)
    assert "1 rerun" not in again.stdout.str()


# What a refresh and a review make of it.


def test_a_refresh_stores_nothing_worse_because_it_is_a_warning(
    project: ScriptedProject,
) -> None:
    project.file(STEP)
    project.record()
    stored = project.baseline.read_bytes()
    project.script({"*": WORSE})

    for which in ("missing", "improved", "evidence"):
        assert project.refresh(*WARN, which=which).ret == pytest.ExitCode.OK
    refused = project.refresh(*WARN, which="all")

    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    refused.stdout.fnmatch_lines(["DRIFTED *", "*1 NOT REFRESHED*"])
    assert project.baseline.read_bytes() == stored


# What other programs read.


def test_files_say_warned(
    project: ScriptedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})
    project.file(f"@gpuperf.budget(syncs=0)\n{STEP}")

    result = project.run("--junit-xml=junit.xml", *WARN)

    folder = project.path / ".gpuperf"
    found: dict[str, Any] = json.loads((folder / "results.json").read_text("utf-8"))
    schema = (
        resources.files("pytest_gpuperf.report")
        .joinpath("results_schema.json")
        .read_text("utf-8")
    )
    jsonschema.validate(found, json.loads(schema))
    assert found["counts"] == {"warned": 1}
    assert found["exit_status"] == 0
    record = found["tests"][TEST]
    assert (record["ending"], record["outcome"]) == ("warned", "over budget")
    assert record["headline"] == f"{WOULD}: OVER LIMIT syncs: 1 per step, limit 0"
    assert "warned=1\nfailed=0\n" in (tmp_path / "output").read_text("utf-8")
    junit = (project.path / "junit.xml").read_text("utf-8")
    assert 'failures="0"' in junit
    assert f'name="gpuperf.warned" value="{WOULD}: OVER LIMIT syncs' in junit
    comment = (folder / "comment.md").read_text("utf-8")
    assert comment.startswith("### gpuperf: 1 test warned (scripted)\n")
    assert f"{WOULD}: OVER LIMIT syncs: 1 per step, limit 0" in comment
    result.stdout.fnmatch_lines([f"::warning *title=gpuperf%3A {WOULD}%3A OVER LIMIT*"])
    monkeypatch.chdir(project.path)
    assert main(["report", "--out=page.html"]) == 0
    page = (project.path / "page.html").read_text("utf-8")
    assert "1 test, none failed" in page
    assert 'class="badge warned"' in page
