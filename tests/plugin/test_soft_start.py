"""Failures that are warnings for now: a soft start, a row of slow runs, a quarantine."""

from __future__ import annotations

import json
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any
from typing import Final

import jsonschema
import pytest
from scripted_project import ScriptedProject

import pytest_gpuperf
from pytest_gpuperf.cli import main
from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.history.place import Folder
from pytest_gpuperf.plugin.parse_settings import PARSERS
from pytest_gpuperf.report import json as json_room


STEP: Final = "def test_step(gpuperf): gpuperf(int)\n"
OVER: Final = "@gpuperf.budget(ms=5)\n" + STEP
QUARANTINE: Final = '@gpuperf.quarantine(until="2027-01-15", reason="issue 12")\n'
SOFT: Final = ("-o", "gpuperf_start=warn until 2027-01-15")
UNTIL: Final = "would have failed until 2027-01-15"
TEST: Final = "test_it.py::test_step"


@pytest.fixture(autouse=True)
def _day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpuperf.plugin.options.today", lambda: "2027-01-15")


@pytest.fixture
def next_day(_day: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpuperf.plugin.options.today", lambda: "2027-01-16")


def results(project: ScriptedProject) -> dict[str, Any]:
    text = (project.path / ".gpuperf" / "results.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


# A soft start.


def test_until_the_last_day_a_failure_is_a_warning_with_its_whole_text(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})
    project.file(OVER)

    result = project.run("-v", *SOFT)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            f"{TEST} WARNED*",
            f"*GpuperfWarning: {UNTIL}: OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms",
            "*  limit    is set in the test's budget*",
            f"*warned: OVER LIMIT ms*{TEST}",
            f"gpuperf: 1 {UNTIL} on scripted*",
            f"*1 warning, 1 {UNTIL} in *",
        ]
    )


def test_after_the_last_day_it_fails_and_the_setting_can_go(
    project: ScriptedProject, next_day: None
) -> None:
    project.file(OVER + STEP.replace("step", "other"))

    result = project.run(*SOFT)

    result.assert_outcomes(failed=1, passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms",
            (
                "gpuperf: the soft start ended on 2027-01-15, and failures fail: remove "
                "gpuperf_start"
            ),
        ]
    )
    result.stdout.no_fnmatch_line(f"*{UNTIL}*")


WORSE: Final = {"step_ms": 12.0, "syncs": 1}
BETTER: Final = {"step_ms": 8.0}
UNCLEAR: Final = {"step_ms": 12.0, "disturbance": "the GPU is throttling"}


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        (WORSE, ()),
        (BETTER, ("-o", "gpuperf_fail_on_improvement=true")),
        (UNCLEAR, ("--gpuperf-strict",)),
    ],
    ids=["worse", "better", "undecided"],
)
def test_what_is_judged_by_a_baseline_is_softened(
    project: ScriptedProject, script: dict[str, object], arguments: tuple[str, ...]
) -> None:
    project.file(STEP)
    project.refresh()
    project.script({"*": script})

    hard = project.run(*arguments)
    soft = project.run(*SOFT, *arguments)

    assert hard.ret == pytest.ExitCode.TESTS_FAILED
    assert soft.ret == pytest.ExitCode.OK
    soft.stdout.fnmatch_lines([f"gpuperf: 1 {UNTIL} on scripted*"])


def test_in_ci_a_missing_baseline_is_a_warning_and_so_is_one_that_nothing_measures(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.file(
        "def test_step(gpuperf):\n    gpuperf(int)\n    gpuperf(int, name='b')\n"
    )
    project.refresh()
    monkeypatch.setenv("CI", "true")
    project.file(STEP + STEP.replace("step", "new"))

    soft = project.run(*SOFT)

    assert soft.ret == pytest.ExitCode.OK
    soft.stdout.fnmatch_lines(
        [f"gpuperf: 1 {UNTIL}, 1 passed on scripted*1 STORED AND NOT MEASURED*"]
    )
    assert project.run().ret == pytest.ExitCode.TESTS_FAILED


def test_counts_that_moved_with_torch_are_a_warning_of_the_run(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": 10.0}, "software": {"torch": "2.6.0"}})
    project.file(STEP)
    project.refresh()
    moved = {"step_ms": 10.0, "syncs": 1}
    project.script({"*": moved, "software": {"torch": "2.7.0"}})

    soft, hard = project.run(*SOFT), project.run()

    assert (soft.ret, hard.ret) == (0, pytest.ExitCode.TESTS_FAILED)
    soft.stdout.fnmatch_lines(
        [f"gpuperf: the run {UNTIL}: torch 2.6.0 -> 2.7.0 moved*"]
    )


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
def test_plain(): assert False
"""


def test_what_no_verdict_fails_is_never_softened(project: ScriptedProject) -> None:
    project.file(f"pytestmark = {QUARANTINE.strip().removeprefix('@')}\n{FAILS_ITSELF}")

    result = project.run(*SOFT)

    result.assert_outcomes(failed=5)
    result.stdout.no_fnmatch_line(f"*{UNTIL} on *")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "warn",
        "warn until",
        "warn until 2027-13-01",
        "warn until 20270115",
        "warn until 2027-W02-5",
        "warn till 2027-01-15",
        "warn until 2027-01-15 noon",
        "WARN UNTIL 2027-01-15",
        "true",
    ],
)
def test_a_start_without_a_day_is_none(value: str) -> None:
    with pytest.raises(ValueError, match=r"such as warn until 2027-01-15$"):
        PARSERS["gpuperf_start"](value)


def test_a_start_without_a_day_is_refused(project: ScriptedProject) -> None:
    project.file(STEP)

    result = project.run("-o", "gpuperf_start=")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            (
                "ERROR: ini key gpuperf_start: found '', expected `warn until` and the last day "
                "in UTC, such as warn until 2027-01-15 [[]GP101[]]"
            )
        ]
    )


def test_a_soft_start_of_no_tests_is_a_run_of_no_tests(
    project: ScriptedProject,
) -> None:
    result = project.run(*SOFT)

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_warning_ends_no_run_that_stops_at_the_first_failure(
    project: ScriptedProject,
) -> None:
    project.file(OVER + OVER.replace("step", "other"))

    result = project.run("-x", *SOFT)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"gpuperf: 2 {UNTIL} on scripted*"])


def test_an_expected_failure_stays_one_and_a_condition_that_is_false_changes_nothing(
    project: ScriptedProject,
) -> None:
    project.file(
        f"@pytest.mark.xfail(strict=True)\n{OVER}"
        f"@pytest.mark.xfail(False, reason='elsewhere')\n{OVER.replace('step', 'other')}"
    )

    result = project.run(*SOFT)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"*1 xfailed, 1 warning, 1 {UNTIL} in *"])


def test_nothing_is_run_again_for_a_warning_and_no_debugger_opens(
    project: ScriptedProject,
) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.file(OVER)

    again = project.run("-p", "rerunfailures", "--reruns=2", *SOFT)
    debugged = project.run("--pdb", *SOFT)

    assert (again.ret, debugged.ret) == (pytest.ExitCode.OK, pytest.ExitCode.OK)
    assert "1 rerun" not in again.stdout.str()


def test_what_another_plugin_raises_in_its_place_is_not_forgiven(
    project: ScriptedProject,
) -> None:
    project.file(OVER)
    project.pytester.makeconftest(
        """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except BaseException as error:
        raise ZeroDivisionError from error
"""
    )

    project.run(*SOFT).assert_outcomes(failed=1)


def test_inline_softens_as_well(project: ScriptedProject) -> None:
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})
    limit = "@gpuperf.budget(syncs=0)\n"
    project.file(limit + STEP + QUARANTINE + limit + STEP.replace("step", "other"))

    soft = project.run("--gpuperf-inline", *SOFT)
    quarantined = project.run("--gpuperf-inline")

    assert soft.ret == pytest.ExitCode.OK
    soft.stdout.fnmatch_lines([f"gpuperf: 2 {UNTIL} on scripted*"])
    quarantined.assert_outcomes(failed=1, warnings=1)
    quarantined.stdout.fnmatch_lines(
        ["gpuperf: 1 quarantined until 2027-01-15 (issue 12): test_it.py::test_other"]
    )


# What a refresh and a review make of it.


@pytest.mark.parametrize("soft", [SOFT, ()], ids=["soft start", "quarantine"])
def test_a_refresh_stores_nothing_worse_because_it_is_a_warning(
    project: ScriptedProject, soft: tuple[str, ...]
) -> None:
    project.file(QUARANTINE + STEP)
    project.refresh()
    stored = project.baseline.read_bytes()
    project.script({"*": WORSE})

    for which in ("missing", "improved", "evidence"):
        assert project.refresh(*soft, which=which).ret == pytest.ExitCode.OK
    refused = project.refresh(*soft, which="all")

    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    refused.stdout.fnmatch_lines(["DRIFTED *", "*1 NOT REFRESHED*"])
    assert project.baseline.read_bytes() == stored


def test_accepting_a_run_of_a_soft_start_follows_the_rules_of_any_run(
    project: ScriptedProject,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project.file(STEP)
    project.refresh()
    stored = project.baseline.read_bytes()
    project.script({"*": WORSE})
    project.run(*SOFT)
    monkeypatch.chdir(project.path)

    assert main(["accept", ".gpuperf"]) == 1
    assert project.baseline.read_bytes() == stored
    assert main(["accept", "--accept-drift", ".gpuperf"]) == 0
    assert project.baseline.read_bytes() != stored


# What other programs read.


def test_files_say_warned(
    project: ScriptedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITLAB_CI": "true",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }.items():
        monkeypatch.setenv(name, value)
    project.script({"*": {"step_ms": 10.0, "syncs": 1}})
    project.file(f"{QUARANTINE}@gpuperf.budget(syncs=0)\n{STEP}")

    result = project.run("--junit-xml=junit.xml")

    found, folder = results(project), project.path / ".gpuperf"
    schema = (
        resources.files(json_room).joinpath("results_schema.json").read_text("utf-8")
    )
    jsonschema.validate(found, json.loads(schema))
    assert found["counts"] == {"warned": 1}
    assert found["exit_status"] == 0
    assert found["notes"] == [
        f"gpuperf: 1 quarantined until 2027-01-15 (issue 12): {TEST}"
    ]
    record = found["tests"][TEST]
    assert (record["ending"], record["outcome"]) == ("warned", "over budget")
    assert record["headline"] == f"{UNTIL}: OVER LIMIT syncs: 1 per step, limit 0"
    assert record["verdicts"][0]["softened"] == UNTIL
    assert "warned=1\nfailed=0\n" in (tmp_path / "output").read_text("utf-8")
    junit = (project.path / "junit.xml").read_text("utf-8")
    assert 'failures="0"' in junit
    assert f'name="gpuperf.warned" value="{UNTIL}: OVER LIMIT syncs' in junit
    comment = (folder / "comment.md").read_text("utf-8")
    assert comment.startswith("### gpuperf: 1 test warned (scripted)\n")
    assert f"{UNTIL}: waits 1 per step (limit 0)" in comment
    (issue,) = json.loads((folder / "gl-code-quality-report.json").read_text("utf-8"))
    assert issue["severity"] == "minor"
    assert issue["description"].startswith(f"{UNTIL}: OVER LIMIT syncs")
    result.stdout.fnmatch_lines([f"::warning *title=gpuperf%3A {UNTIL}%3A OVER LIMIT*"])


def test_the_page_and_the_joined_results_say_warned(
    project: ScriptedProject,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jinja2")
    project.file(QUARANTINE + OVER)
    project.run()
    monkeypatch.chdir(project.path)

    merged = main(["merge", ".gpuperf"])
    said = capsys.readouterr().out
    main(["report", "--out=page.html"])

    assert merged == 0
    assert f"gpuperf: 1 {UNTIL} on scripted" in said
    assert f"1 quarantined until 2027-01-15 (issue 12): {TEST}" in said
    page = (project.path / "page.html").read_text("utf-8")
    assert "1 test, none failed" in page
    assert 'class="badge warned"' in page
    assert f"{UNTIL}: OVER LIMIT ms" in page


# Several slow runs in a row.

TWO: Final = ("-o", "gpuperf_consecutive=2", "--gpuperf-history=runs")
ONE_OF_TWO: Final = "worse in 1 of 2 consecutive runs"


@pytest.fixture
def stored(project: ScriptedProject) -> ScriptedProject:
    """A project with a baseline of 10 ms, and one run of that in its history."""
    project.file(STEP)
    project.refresh()
    project.run(*TWO).assert_outcomes(passed=1)
    project.script({"*": {"step_ms": 12.0}})
    return project


def test_a_slowdown_fails_at_the_second_run_in_a_row(stored: ScriptedProject) -> None:
    first, second = stored.run(*TWO), stored.run(*TWO)

    assert first.ret == pytest.ExitCode.OK
    first.stdout.fnmatch_lines(
        [
            f"*GpuperfWarning: {ONE_OF_TWO}: SLOWER: 12.00 ms per step*",
            f"gpuperf: 1 {ONE_OF_TWO} on scripted*",
        ]
    )
    second.assert_outcomes(failed=1)
    assert "softens nothing" not in second.stdout.str()


def test_a_run_that_is_not_worse_begins_the_row_anew(stored: ScriptedProject) -> None:
    stored.run(*TWO)
    stored.script({"*": {"step_ms": 10.0}})
    stored.run(*TWO).assert_outcomes(passed=1)
    stored.script({"*": {"step_ms": 12.0}})

    assert stored.run(*TWO).ret == pytest.ExitCode.OK


def test_counts_fail_at_once_also_beside_a_time(stored: ScriptedProject) -> None:
    stored.script({"*": WORSE})

    stored.run(*TWO).assert_outcomes(failed=1)


def test_three_runs_are_counted(stored: ScriptedProject) -> None:
    stored.script({"*": {"step_ms": 10.0}})
    stored.run(*TWO)
    stored.script({"*": {"step_ms": 12.0}})
    three = ("-o", "gpuperf_consecutive=3", "--gpuperf-history=runs")

    runs = [stored.run(*three) for _ in range(3)]

    for number in (1, 2):
        line = f"gpuperf: 1 worse in {number} of 3 consecutive runs on scripted*"
        runs[number - 1].stdout.fnmatch_lines([line])
    runs[2].assert_outcomes(failed=1)


@pytest.mark.parametrize("loss", ["nothing", "folder", "file"])
def test_a_run_that_the_history_does_not_know_counts_as_worse(
    stored: ScriptedProject, loss: str
) -> None:
    runs = stored.path / "runs"
    (file,) = runs.rglob("*.jsonl.gz")
    if loss == "file":
        file.write_bytes(b"torn")
    else:
        file.unlink()
        for folder in (file.parent, runs)[: 2 * (loss == "folder")]:
            folder.rmdir()

    result = stored.run(*TWO)

    result.assert_outcomes(failed=1)
    said = " ".join(" ".join(result.outlines).split())
    why = {
        "nothing": "an earlier run of this test is not in the history",
        "folder": "there is no such folder; expected that of a history [GP518]",
        "file": "in the history: it is not a gzip file, or damaged [GP523]",
    }
    assert "gpuperf_consecutive = 2 softens nothing, as what is unknown" in said
    assert why[loss] in said


def test_a_slow_run_that_the_history_cannot_keep_fails_the_run(
    stored: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        msg = "runs: cannot be written, no space left on device"
        raise UsageError(msg, ErrorId.GP519)

    monkeypatch.setattr(Folder, "write", full)

    result = stored.run(*TWO)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert results(stored)["exit_status"] == 1
    result.stdout.fnmatch_lines(["*gpuperf_consecutive needs it, so the run fails*"])


def test_without_a_history_a_row_of_runs_cannot_be_asked_for(
    project: ScriptedProject,
) -> None:
    project.file(STEP)

    result = project.run("-o", "gpuperf_consecutive=2")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            (
                "ERROR: gpuperf_consecutive = 2 asks for the runs before, and no history is set: "
                "set gpuperf_history, or give --gpuperf-history=FOLDER [[]GP117[]]"
            )
        ]
    )
    assert project.run("-o", "gpuperf_consecutive=1").ret == pytest.ExitCode.OK


@pytest.mark.parametrize("value", ["", "0", "-1", "2.0", "11", "two", "٢", "9" * 5000])
def test_a_row_of_no_such_length_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"of runs from 1 to 10, such as 2$"):
        PARSERS["gpuperf_consecutive"](value)


# Quarantine.

PLACES: Final = f"""
pytestmark = gpuperf.quarantine(until="2027-01-10", reason="the module")
{OVER.replace("step", "of_the_module")}
@gpuperf.quarantine(until="2027-01-20", reason="the class")
class TestIt:
    {OVER.replace("def", "    def").replace("(gpuperf)", "(self, gpuperf)")}
    @pytest.mark.parametrize("n", [1, pytest.param(2, marks=gpuperf.quarantine(
        until="2027-02-01", reason="the parameter"))])
    @gpuperf.budget(ms=5)
    def test_parameter(self, gpuperf, n): gpuperf(int)
"""


@pytest.mark.parametrize(
    "arguments", [(), ("-p", "xdist.plugin", "-n2")], ids=["alone", "xdist"]
)
def test_the_nearest_mark_says_until_when(
    project: ScriptedProject, arguments: tuple[str, ...]
) -> None:
    if arguments:
        pytest.importorskip("xdist")
    project.file(PLACES)

    result = project.run(*arguments)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    inside = "test_it.py::TestIt::test_"
    result.stdout.fnmatch_lines(
        [
            "*note     the quarantine ended on 2027-01-10: the module",
            (
                "gpuperf: 1 failed, the quarantine ended on 2027-01-10 (the module), remove the "
                "mark: test_it.py::test_of_the_module"
            ),
            (
                "gpuperf: 2 quarantined until 2027-01-20 (the class): "
                f"{inside}step, {inside}parameter[[]1[]]"
            ),
            (
                "gpuperf: 1 quarantined until 2027-02-01 (the parameter): "
                f"{inside}parameter[[]2[]]"
            ),
            (
                "gpuperf: 1 failed (1 over limit), 2 would have failed until 2027-01-20, 1 would "
                "have failed until 2027-02-01 on scripted*"
            ),
        ]
    )
    last = result.outlines[-1]
    assert "1 failed, " in last
    assert "2 would have failed until 2027-01-20" in last


def test_the_later_of_two_days_decides(project: ScriptedProject) -> None:
    project.file(PLACES)

    result = project.run("-k", "module", *SOFT)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"gpuperf: 1 {UNTIL} on scripted*"])


def test_a_mark_that_can_go_is_named(project: ScriptedProject) -> None:
    old = QUARANTINE.replace("-15", "-14").replace("12", "13")
    within = "@gpuperf.budget(ms=50)\n"
    project.file(QUARANTINE + within + STEP + old + within + STEP.replace("step", "b"))

    result = project.run("-qq")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            (
                f"gpuperf: 1 quarantined until 2027-01-15 (issue 12), passes now: remove the "
                f"mark: {TEST}"
            ),
            (
                "gpuperf: 1 passing, the quarantine ended on 2027-01-14 (issue 13), remove the "
                "mark: test_it.py::test_b"
            ),
        ]
    )


@pytest.mark.parametrize(
    ("keywords", "found"),
    [
        ({}, "until=''"),
        ({"reason": "r"}, "until=''"),
        ({"until": "2027-01-15"}, "reason=''"),
        ({"until": "2027-01-15", "reason": "  "}, "reason='  '"),
        ({"until": "2027-01-15", "reason": 12}, "reason=12"),
        ({"until": "2027-02-30", "reason": "r"}, "until='2027-02-30'"),
        ({"until": "tomorrow", "reason": "r"}, "until='tomorrow'"),
        ({"until": 20270115, "reason": "r"}, "until=20270115"),
        ({"until": datetime(2027, 1, 15), "reason": "r"}, "until=datetime"),  # noqa: DTZ001
    ],
)
def test_a_quarantine_without_a_day_or_a_reason_is_refused(
    keywords: dict[str, Any], found: str
) -> None:
    with pytest.raises(UsageError, match=r"expected .* \[GP225\]$") as caught:
        pytest_gpuperf.quarantine(**keywords)

    assert str(caught.value).startswith(f"gpuperf.quarantine({found}")


def test_a_day_may_be_a_date_and_the_mark_may_be_pytests_own(
    project: ScriptedProject,
) -> None:
    project.file(
        "from datetime import date\n"
        "@gpuperf.quarantine(until=date(2027, 1, 15), reason='two\\nlines')\n"
        f"{OVER}@pytest.mark.gpuperf_quarantine(until='2027-01-15')\n"
        f"{STEP.replace('step', 'b')}"
    )

    assert project.run("-k", "step").ret == pytest.ExitCode.USAGE_ERROR
    source = project.path / "test_it.py"
    source.write_text(source.read_text().replace("15')", "15', reason='r')"))
    result = project.run()

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpuperf: 1 quarantined*(two lines): *"])
