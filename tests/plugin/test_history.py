"""A run leaves a file in the history that its project names."""

from __future__ import annotations

import getpass
import gzip
import os
import re
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.cli import main
from pytest_gpuperf.cli.files import ask_project
from pytest_gpuperf.history.document import dumps_rows
from pytest_gpuperf.history.document import loads
from pytest_gpuperf.history.index import HistoryIndex
from pytest_gpuperf.history.place import Folder
from pytest_gpuperf.model.history import CallRow
from pytest_gpuperf.plugin.outputs import name_of


STEPS = """
def test_a(gpuperf): gpuperf(int)
def test_b(gpuperf):
    gpuperf(int, name="one")
    gpuperf(int, name="two")
def test_plain(): pass
"""
KEEP = "--gpuperf-history=runs"


def files(project: ScriptedProject) -> list[Path]:
    return sorted((project.path / "runs").rglob("*"))


def kept(project: ScriptedProject) -> list[CallRow]:
    """Rows of the one file that there is."""
    folder, file = files(project)
    assert folder == project.path / "runs" / "scripted"
    return loads(file.read_bytes())


@pytest.mark.parametrize(
    "arguments", [(), ("-p", "xdist.plugin", "-n2")], ids=["alone", "xdist"]
)
def test_a_run_leaves_a_line_a_call(
    arguments: tuple[str, ...], project: ScriptedProject
) -> None:
    if arguments:
        pytest.importorskip("xdist")
    project.file(STEPS)

    project.run(KEEP, *arguments).assert_outcomes(passed=3, warnings=2)

    rows = kept(project)
    assert [row.test for row in rows] == [
        "test_it.py::test_a",
        "test_it.py::test_b#one",
        "test_it.py::test_b#two",
    ]
    assert rows[0].hardware == "scripted"
    assert rows[0].metrics == {
        "step_ms": 10.0,
        "peak_allocated_bytes": 100 * 2**20,
        "syncs": 0.0,
    }
    assert rows[0].outcomes["step_ms"] == "no baseline"
    assert "torch" in rows[0].versions


def test_the_name_of_a_file_says_when_and_what_was_measured(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.path.parent))
    monkeypatch.setenv("GITHUB_SHA", "1f2e3d4c5b6a79880000")
    project.file(STEPS)

    project.run(KEEP)

    name = files(project)[-1].name
    assert re.fullmatch(
        r"\d{8}T\d{6}\.\d{3}Z-1f2e3d4c5b6a-[0-9a-f]{8}\.jsonl\.gz", name
    )
    assert {(row.commit, row.dirty) for row in kept(project)} == {
        ("1f2e3d4c5b6a79880000", None)
    }


def test_outcomes_are_the_verdicts_and_values_what_they_call_now(
    project: ScriptedProject,
) -> None:
    project.file("def test_a(gpuperf): gpuperf(int)\n")
    project.refresh()
    project.script({"*": {"step_ms": 12.3456789}})

    project.run(KEEP).assert_outcomes(failed=1)

    (row,) = kept(project)
    assert (row.metrics["step_ms"], row.outcomes["step_ms"]) == (12.3457, "regressed")


def test_the_ini_key_does_the_same_and_each_run_has_a_file(
    project: ScriptedProject,
) -> None:
    project.pytester.makeini("[pytest]\ngpuperf_history = runs\n")
    project.file("def test_a(gpuperf): gpuperf(int)\n")

    project.run()
    project.run("-x", "--lf")

    assert len(files(project)) == 1 + 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("-k", "plain"),
        ("-k", "nothing"),
        ("--co",),
        ("--gpuperf-inline",),
    ],
)
def test_a_run_that_measured_nothing_for_good_leaves_no_file(
    arguments: tuple[str, ...], project: ScriptedProject
) -> None:
    project.file(STEPS)

    project.run(KEEP, *arguments)

    assert files(project) == []


def test_a_history_that_cannot_be_written_is_said_and_fails_no_test(
    project: ScriptedProject,
) -> None:
    project.file("def test_a(gpuperf): gpuperf(int)\n")
    (project.path / "runs").write_text("", "utf-8")

    ended = project.run(KEEP, "-q")

    ended.assert_outcomes(passed=1, warnings=1)
    assert ended.ret == 0
    said = " ".join(line.strip() for line in ended.outlines)
    path = project.path / "runs"
    assert (f"gpuperf: the history lacks this run: {path}: cannot be written, ") in said


def test_with_v_the_file_is_named(project: ScriptedProject) -> None:
    project.file("def test_a(gpuperf): gpuperf(int)\n")

    ended = project.run(KEEP, "-v")

    name = files(project)[-1].name
    assert f"history: scripted/{name} in {project.path}/runs" in ended.outlines


def test_an_empty_place_is_a_usage_error(project: ScriptedProject) -> None:
    project.file("def test_a(gpuperf): gpuperf(int)\n")

    ended = project.run("--gpuperf-history=")

    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    assert ended.errlines == [
        (
            "ERROR: --gpuperf-history: found '', expected a folder, or a URL such as "
            "s3://bucket/history [GP101]"
        ),
        "",
    ]


def test_a_url_takes_files_too(project: ScriptedProject) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    project.file("def test_a(gpuperf): gpuperf(int)\n")

    project.run("--gpuperf-history=memory://bucket/runs")

    (path,) = system.find("/bucket/runs")
    assert [row.test for row in loads(system.cat_file(path))] == ["test_it.py::test_a"]
    system.store.clear()


def test_a_file_names_nobody_and_no_place_of_this_machine(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    project.file("@gpuperf.budget(ms=5)\ndef test_a(gpuperf): gpuperf(int)\n")

    project.run(KEEP).assert_outcomes(failed=1)

    text = gzip.decompress(files(project)[-1].read_bytes()).decode()
    named = [
        socket.gethostname(),
        getpass.getuser(),
        str(project.path),
        str(Path.home()),
    ]
    assert [
        name for name in [*named, "ghs_secret", os.sep + "tmp"] if name in text
    ] == []


def test_what_was_kept_is_shown(
    project: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.pytester.makeini("[pytest]\ngpuperf_history = runs\n")
    project.file("def test_a(gpuperf): gpuperf(int)\n")
    project.run()
    project.script({"*": {"step_ms": 11.0}})
    project.run()
    capsys.readouterr()

    assert main(["history", "test_a"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "test_it.py::test_a",
        "step_ms on scripted, 2 of 2 runs",
        "10.00 ms to 11.00 ms  ▁█",
    ]
    assert (project.path / ".gpuperf" / "history-index.sqlite3").exists()


@pytest.mark.parametrize(
    ("ini", "sentence"),
    [
        (
            "gpuperf_seconds = 0",
            (
                "ini key gpuperf_seconds: found '0', expected a positive number of "
                "seconds"
            ),
        ),
        ("addopts = -p no:pytest_gpuperf.plugin", "it does not load the plugin "),
        ("addopts = --nosuch", "ERROR: usage: "),
    ],
)
def test_a_project_whose_settings_cannot_be_read_says_why(
    ini: str,
    sentence: str,
    project: ScriptedProject,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project.pytester.makeini(f"[pytest]\n{ini}\n")

    assert main(["history"]) == 4

    assert capsys.readouterr().err.startswith(
        f"gpuperf: pytest cannot read the settings of this project: {sentence}"
    )


def test_a_command_that_only_asks_is_no_refresh(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    project.pytester.makeini(
        "[pytest]\ngpuperf_update = all\ngpuperf_history = s3://bucket/runs\n"
    )

    assert ask_project().history == "s3://bucket/runs"


HALF_PAST_NINE: Final = 1_772_357_400.0
"""The begin of 2026-03-01T09:30:00Z, in seconds since 1970."""

ROW: Final = CallRow(
    test="t", hardware="cpu-x", recorded_at="2026-03-01T09:30:00Z", commit=None
)


def test_no_two_runs_name_their_files_alike() -> None:
    assert name_of(ROW, HALF_PAST_NINE + 0.25, "0a1b2c3d") == (
        "cpu-x/20260301T093000.250Z-nocommit-0a1b2c3d.jsonl.gz"
    )
    assert name_of(replace(ROW, commit="../../etc"), HALF_PAST_NINE, "1") == (
        "cpu-x/20260301T093000.000Z-etc-1.jsonl.gz"
    )


def test_runs_of_one_second_are_shown_in_their_order(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "runs")
    for value, later, token in ((10.0, 0.1, "b"), (11.0, 0.9, "a"), (12.0, 0.95, "0")):
        row = replace(ROW, metrics={"step_ms": value})
        name = name_of(row, HALF_PAST_NINE + later, token)
        folder.write(name, dumps_rows([row]))

    with closing(HistoryIndex(folder, "runs", tmp_path / "index")) as index:
        (series,) = index.series()

        assert [point.value for point in index.points(series, 9)] == [10, 11, 12]
