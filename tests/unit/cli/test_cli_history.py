"""``gpuperf history``: whole outputs on folders of files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from history_rows import H200
from history_rows import STEP
from history_rows import keep
from history_rows import keep_course
from history_rows import row

from pytest_gpuperf.cli import history
from pytest_gpuperf.cli import main
from pytest_gpuperf.model.results import ProjectSettings


RUNS = Path("runs")


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["history", "--history=runs", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["history", *arguments]) == 4
    return capsys.readouterr().err


def test_one_test_is_shown_run_by_run(capsys: pytest.CaptureFixture[str]) -> None:
    keep_course(RUNS, [12.0, 12.06, 11.98])
    keep(
        RUNS,
        "x/9.jsonl.gz",
        row(9, 13.1, dirty=True, outcomes={"step_ms": "regressed"}),
    )

    assert shown(capsys, "test_step") == [
        "t.py::test_step",
        "step_ms on cuda-nvidia-h200, 4 of 4 runs",
        "11.98 ms to 13.10 ms  ▁▂▁█",
        "when (UTC)        commit       value  change  outcome",
        "2026-02-25 06:13  0000000   12.00 ms          pass",
        "2026-02-26 06:13  0000001   12.06 ms  +0.5 %  pass",
        "2026-02-27 06:13  0000002   11.98 ms  -0.7 %  pass",
        "2026-03-06 06:13  0000009+  13.10 ms  +9.3 %  REGRESSED",
    ]


def test_only_the_last_runs_are_shown_and_another_metric(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep_course(RUNS, [12.0] * 30, metrics={"step_ms": 12.0, "syncs": 1})

    lines = shown(capsys, STEP, "--last=2", "--metric=syncs")

    assert lines[:3] == [
        "t.py::test_step",
        "syncs on cuda-nvidia-h200, 2 of 30 runs",
        "always 1  ▁▁",
    ]
    assert len(lines) == 4 + 2


def test_the_newest_runs_are_listed_and_all_that_are_drawn_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep_course(RUNS, [12.0] * 30)

    short = shown(capsys, STEP)

    assert short[1] == "step_ms on cuda-nvidia-h200, 20 of 30 runs"
    assert len(short) == 4 + 5 + 1
    assert short[-1] == "and 15 runs before them, with -v"
    assert len(shown(capsys, STEP, "-v")) == 4 + 20


def test_several_tests_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    for number, value in enumerate((12.0, 12.0, 13.2)):
        keep(
            RUNS,
            f"x/{number}.jsonl.gz",
            row(number, value),
            row(number, test="t.py::test_other", metrics={"syncs": number}),
            row(number, value, hardware="cpu-x"),
        )

    assert shown(capsys) == [
        "cuda-nvidia-h200:",
        "     now   change  runs  course  metric   test",
        "       2       +2     3  ▁▅█     syncs    t.py::test_other",
        "13.20 ms  +10.0 %     3  ▁▁█     step_ms  t.py::test_step",
        "cpu-x, step_ms:",
        "     now   change  runs  course  test",
        "13.20 ms  +10.0 %     3  ▁▁█     t.py::test_step",
    ]
    assert shown(capsys, "--hardware=cpu-x")[0] == "t.py::test_step"


def test_a_terminal_without_blocks_gets_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, value in enumerate((1.0, 2.0, 3.0)):
        keep(RUNS, f"x/{number}.jsonl.gz", row(number, value, test="t.py::test_é"))
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)

    assert main(["history", "--history=runs"]) == 0

    output.seek(0)
    lines = output.read().splitlines()
    assert (lines[0], lines[2]) == ("t.py::test_\\xe9", "1.000 ms to 3.000 ms  _+#")


@pytest.mark.parametrize(
    ("asked", "tests"),
    [
        ("t.py::test_a", ["t.py::test_a"]),
        ("test_a", ["t.py::test_a", "t.py::test_a[x]"]),
        ("[x]", ["t.py::test_a[x]"]),
        ("*test_[b]", ["t.py::test_b"]),
        ("t.py*", ["t.py::test_a", "t.py::test_a[x]", "t.py::test_b"]),
    ],
)
def test_a_test_is_named_whole_in_part_or_by_a_pattern(
    asked: str, tests: list[str]
) -> None:
    names = ["t.py::test_a", "t.py::test_a[x]", "t.py::test_b"]
    known = [history.Series(test=t, metric="syncs", hardware="x") for t in names]

    assert [series.test for series in history.matching(asked, known)] == tests


def test_an_unknown_test_is_told_the_nearest_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep_course(RUNS, [1.0])

    assert refused(capsys, "test_stp", "--history=runs") == (
        "gpuperf: no test in the history is called 'test_stp'; expected one as "
        "t.py::test_step [GP522]\n"
    )


def test_changes_are_shown_with_the_commits_between_which_they_came(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quiet = (1.0, 1.01, 0.99, 1.005, 0.995)
    for number in range(40):
        late = number >= 25
        keep(
            RUNS,
            f"x/{number:02}.jsonl.gz",
            row(
                number,
                metrics={
                    "step_ms": (13.0 if late else 12.0) * quiet[number % 5],
                    "syncs": 1 if number > 30 else 0,
                },
                versions={"torch": "2.14.0" if late else "2.13.0"},
            ),
        )

    assert shown(capsys, "--changes") == [
        "cuda-nvidia-h200:",
        "since       commits           old -> new            change",
        "2026-03-28  000001e..000001f  0 -> 1                +1",
        "    syncs of t.py::test_step",
        "2026-03-22  0000018..0000019  12.00 ms -> 13.00 ms  +8.3 %",
        "    step_ms of t.py::test_step",
        "    with it changed: torch 2.13.0 -> 2.14.0",
        "gpuperf: 2 changes of level in 2 series, the newest 200 runs of each",
    ]


def test_where_nothing_changed_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep_course(RUNS, [12.0, 12.1] * 20)

    assert shown(capsys, "--changes", "--since=30") == [
        "gpuperf: no change of level in 2 series, the newest 30 runs of each"
    ]


def test_of_a_time_with_few_runs_nothing_can_be_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep_course(RUNS, [12.0] * 4 + [24.0] * 5)

    assert shown(capsys, "--changes") == [
        "gpuperf: no change of level in 2 series, the newest 200 runs of each; 1 of them",
        "    too short to tell",
    ]


def test_files_that_are_none_of_a_history_are_named_above(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep_course(RUNS, [12.0])
    (RUNS / "notes.txt").write_text("")

    assert shown(capsys)[:2] == [
        "left out: notes.txt: its name does not end with .jsonl.gz [GP523]",
        "t.py::test_step",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--history=no"],
            "{here}/no: there is no such folder; expected that of a history [GP518]",
        ),
        (
            ["--history=empty"],
            (
                "{here}/empty: no run is stored there; pytest --gpuperf leaves one with "
                "--gpuperf-history [GP521]"
            ),
        ),
        (
            ["--history=runs", "--hardware=tpu"],
            "--hardware: found 'tpu', expected one of cuda-nvidia-h200 [GP521]",
        ),
        (
            ["--history=runs", "--metric=speed"],
            "--metric: found 'speed', expected one of step_ms, syncs [GP522]",
        ),
        (
            ["--last=0"],
            (
                "argument --last: expected a whole number from 1 on, found '0'; see "
                "`gpuperf history --help` [GP102]"
            ),
        ),
        (
            ["--since=1001"],
            (
                "argument --since: expected a whole number from 1 to 1000, found '1001'; "
                "see `gpuperf history --help` [GP102]"
            ),
        ),
    ],
)
def test_what_cannot_be_shown_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    keep_course(RUNS, [12.0])
    Path("empty").mkdir()

    assert refused(capsys, *arguments) == (
        f"gpuperf: {sentence.format(here=Path.cwd())}\n"
    )


def configure(monkeypatch: pytest.MonkeyPatch, place: str | None) -> None:
    settings = ProjectSettings(
        device=None,
        baselines="baselines",
        artefacts="artefacts",
        history=place,
        lock_seconds=1.0,
    )
    monkeypatch.setattr(history, "ask_project", lambda: settings)


def test_the_project_says_where_its_history_lies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_course(RUNS, [12.0])
    configure(monkeypatch, "runs")

    assert main(["history"]) == 0

    assert capsys.readouterr().out.startswith(
        f"{STEP}\nstep_ms on {H200}, 1 of 1 run\n"
    )
    assert Path("artefacts", "history-index.sqlite3").exists()


def test_where_nobody_says_so_it_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, None)

    assert refused(capsys) == (
        "gpuperf: no history folder is set: name it with --history, or for the whole "
        "project with the ini key gpuperf_history [GP520]\n"
    )
