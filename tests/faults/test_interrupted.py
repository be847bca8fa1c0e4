"""Whatever ends a run before its end: what is complete is kept, whole, and it is said."""

from __future__ import annotations

import copy
import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from played_children import Play, Played
from scripted_project import ON, ScriptedProject

from pytest_gpuperf.baselines import store
from pytest_gpuperf.model.baseline import Refresh
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.plugin.session import Terminated, ended_by_sigterm, live_line
from pytest_gpuperf.plugin.terminal import LogLines


A, B, C = "t.py::a", "t.py::b", "t.py::c"
STAGES = [(test, number) for number in range(8) for test in (A, B, C)]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(tmp_path, monkeypatch)


def runs_before(test: str, at: tuple[str, int]) -> int:
    """Return how many runs *test* has had when that of *at* breaks off."""
    broken, number = at
    return number + (test < broken)


@pytest.mark.parametrize("at", STAGES, ids=lambda at: f"run {at[1] + 1} of {at[0][-1]}")
def test_an_interrupted_refresh_keeps_what_has_enough_runs_and_goes_on_with_the_rest(
    played: Played, at: tuple[str, int]
) -> None:
    made = {test: runs_before(test, at) for test in (A, B, C)}
    kept = {test: runs for test, runs in made.items() if runs >= 5}

    found = played.run(Play(interrupted_at=at), Refresh.MISSING)

    assert played.runs == kept
    assert {verdict.test for verdict in found.verdicts} == set(kept)
    assert set(found.unmeasured) == {A, B, C} - set(kept)
    again = Play()
    played.run(again, Refresh.MISSING)
    assert played.runs == {A: 8, B: 8, C: 8} | kept
    assert all(number == 0 for test, number in again.done if test in kept)


STORED = "tests are stored in baselines/scripted.json"
THIN = "of them with 5 or more of their runs"
LOST = "had fewer than 5 undisturbed runs"
SAID = {
    0: f"nothing was stored; 3 tests {LOST}",
    4: f"1 test is {STORED[10:]}, 1 {THIN}; 2 tests {LOST}",
    5: f"3 {STORED}, 3 {THIN}",
    7: f"3 {STORED}, 2 {THIN}",
}


@pytest.mark.parametrize("number", SAID)
def test_what_is_stored_is_said_at_the_interruption(
    played: Played, number: int
) -> None:
    played.run(Play(interrupted_at=(B, number)), Refresh.MISSING)

    said = played.said
    command = "gpuperf refresh --kind=missing --device=scripted"
    go_on = [f"  go on    {command}"] if LOST in SAID[number] else []
    assert said[len(said) - len(go_on) :] == go_on
    sentence = " ".join(map(str.strip, said[: len(said) - len(go_on)]))
    assert sentence == f"gpuperf: interrupted: {SAID[number]}"


def test_each_test_is_stored_the_moment_it_has_all_its_runs(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_at: list[tuple[int, list[str]]] = []
    play = Play()
    write = store.write

    def noting(path: Path, text: str) -> None:
        write(path, text)
        if path.name.startswith("pending-"):
            return
        stored_at.append((len(play.done), sorted(json.loads(text)["tests"])))

    monkeypatch.setattr(store, "write", noting)
    monkeypatch.setattr("pytest_gpuperf.runner.baseline_writer.WRITING_SHARE", 0)

    played.run(play, Refresh.MISSING)

    assert stored_at == [(22, [A]), (23, [A, B]), (24, [A, B, C])]


def test_a_test_whose_runs_are_made_up_for_does_not_hold_back_the_others(
    played: Played,
) -> None:
    disturbed = {(B, number) for number in range(4)}

    played.run(Play(disturbed=disturbed, interrupted_at=(B, 8)), Refresh.MISSING)

    assert played.runs == {A: 8, C: 8}


def test_disturbed_runs_count_for_nothing_when_it_is_interrupted(
    played: Played,
) -> None:
    disturbed = {(test, 2) for test in (A, B, C)}

    played.run(Play(disturbed=disturbed, interrupted_at=(C, 5)), Refresh.MISSING)

    assert played.runs == {A: 5, B: 5}


@pytest.mark.parametrize("number", range(1, 8))
def test_a_test_that_fails_is_never_stored_however_it_ends(
    played: Played, number: int
) -> None:
    play = Play(failing={B: Ending.FAILED}, interrupted_at=(C, number))

    played.run(play, Refresh.MISSING)

    assert B not in played.runs


@pytest.mark.parametrize("number", [1, 4, 6])
def test_an_old_baseline_outlives_a_refresh_with_too_few_runs(
    played: Played, number: int
) -> None:
    played.run(Play(), Refresh.MISSING)
    before = played.entries

    played.run(
        Play(ms=dict.fromkeys((A, B, C), 8.0), interrupted_at=(B, number)), Refresh.ALL
    )

    new = {A, B, C} if number >= 5 else ({A} if number == 4 else set())
    assert {t for t in before if played.entries[t] != before[t]} == new


def test_the_rest_of_a_refresh_of_all_is_named_where_an_old_baseline_hides_it(
    played: Played,
) -> None:
    played.run(Play(), Refresh.MISSING)
    played.said.clear()

    faster = dict.fromkeys((A, B, C), 8.0)
    played.run(Play(ms=faster, interrupted_at=(B, 4)), Refresh.ALL)

    assert played.said[-1] == (
        "  go on    gpuperf refresh --device=scripted t.py::b t.py::c"
    )


def test_what_drifted_too_far_is_not_stored_early_either(played: Played) -> None:
    played.run(Play(), Refresh.MISSING)
    before = played.entries

    played.run(Play(ms={A: 20.0}, interrupted_at=(B, 7)), Refresh.ALL)

    assert played.entries == before


@pytest.mark.parametrize("moment", ["before", "between", "behind"])
def test_an_interrupt_in_the_writing_leaves_a_whole_file(
    played: Played, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """In the first writing, of A; that of what is kept follows."""
    writings: list[Path] = []
    write = store.replace_file

    def broken(path: Path, content: bytes) -> None:
        writings.append(path)
        if len(writings) > 1:
            write(path, content)
            return
        if moment == "between":
            monkeypatch.setattr(os, "fsync", interrupting)
        if moment != "before":
            write(path, content)
        raise KeyboardInterrupt

    fsync = os.fsync

    def interrupting(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "replace_file", broken)

    played.run(Play(), Refresh.MISSING)

    assert played.runs == {A: 8, B: 7, C: 7}
    assert [path.name for path in played.file.parent.iterdir()] == ["scripted.json"]


def test_a_folder_that_cannot_be_written_is_tried_once_and_said_at_the_end(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []

    def full(path: Path, content: bytes) -> None:
        tries.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "replace_file", full)

    found = played.run(Play(), Refresh.MISSING)

    texts = [report.text for report in found.reports.values()]
    assert all("no space left on device" in text for text in texts)
    assert [path for path in tries if path == played.file] == [played.file] * 2


# Verdicts that were reached before an interrupt.


@pytest.mark.parametrize("maxfail", [0, 2])
def test_verdicts_that_were_reached_are_said_when_it_is_interrupted(
    played: Played, maxfail: int
) -> None:
    played.run(Play(), Refresh.MISSING)
    play = Play(budget_ms={A: 5.0}, ms={C: 12.0}, interrupted_at=(C, 3))

    found = played.run(play, maxfail=maxfail)

    outcomes = {verdict.test: verdict.outcome for verdict in found.verdicts}
    assert outcomes == {A: Outcome.OVER_BUDGET, B: Outcome.PASS}
    assert found.unmeasured == (C,)
    assert found.stopped == "not decided (interrupted)"


def test_a_verdict_that_more_runs_could_change_is_not_shown(played: Played) -> None:
    played.run(Play(), Refresh.MISSING)

    found = played.run(Play(ms={A: 12.0}, interrupted_at=(A, 1)))

    assert A in found.unmeasured
    assert {verdict.test for verdict in found.verdicts} == {B, C}


# -x and --maxfail.


def executed(play: Play) -> list[str]:
    return list(dict.fromkeys(test for test, _ in play.done))


FAULTS = {
    "fails by itself": Play(failing={B: Ending.FAILED}),
    "dies": Play(failing={B: Ending.DIED}),
    "is over its budget": Play(budget_ms={B: 5.0}),
    "has regressed": Play(ms={B: 20.0}),
    "has regressed as the last but one": Play(ms={B: 20.0, C: 20.0}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_failure_ends_the_measuring(played: Played, fault: str) -> None:
    played.run(Play(), Refresh.MISSING)
    play = copy.deepcopy(FAULTS[fault])

    found = played.run(play, maxfail=1)

    assert executed(play) == [A, B]
    assert found.reports[A].ending is Ending.PASSED
    assert found.reports[B].ending in {Ending.FAILED, Ending.DIED}
    assert found.unmeasured == (C,)
    assert {
        t for t, r in found.all_reports.items() if r.ending is Ending.SKIPPED
    } == set(found.unmeasured)


@pytest.mark.parametrize(
    ("maxfail", "begun"), [(0, 3), (1, 1), (2, 2), (3, 3), (4, 3)], ids=str
)
def test_as_many_failures_end_it_as_are_asked_for(
    played: Played, maxfail: int, begun: int
) -> None:
    play = Play(failing=dict.fromkeys((A, B, C), Ending.FAILED))

    found = played.run(play, maxfail=maxfail)

    assert len(executed(play)) == begun
    assert len(found.unmeasured) == 3 - begun


def test_a_test_that_may_fail_does_not_end_it(played: Played) -> None:
    play = Play(failing={A: Ending.FAILED}, may_fail={A})

    assert not played.run(play, maxfail=1).unmeasured


def test_a_failure_in_a_refresh_ends_it_and_nothing_is_stored(played: Played) -> None:
    play = Play(failing={B: Ending.FAILED})

    found = played.run(play, Refresh.MISSING, maxfail=1)

    assert play.done == [(A, 0), (B, 0)]
    assert found.unmeasured == (C,)
    assert not played.runs


# SIGTERM.


def test_sigterm_ends_a_run_as_an_interrupt_does() -> None:
    with pytest.raises(Terminated, match="SIGTERM"), ended_by_sigterm():
        signal.raise_signal(signal.SIGTERM)

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_sigterm_does_not_break_off_what_keeps_the_rest() -> None:
    kept = []

    def keep() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            kept.append("all")

    with pytest.raises(Terminated), ended_by_sigterm():
        keep()

    assert kept == ["all"]


def test_a_project_that_waits_for_sigterm_itself_is_left_alone() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with ended_by_sigterm():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    assert heard == [signal.SIGTERM]


# Real processes and real signals.

KILLS = """
import os, signal, threading
from pathlib import Path

def test_first(gpuperf):
    gpuperf(int)

def test_second(gpuperf):
    runs = Path("runs.txt")
    with runs.open("a") as file:
        file.write(".")
    if runs.stat().st_size == {run}:
        os.kill(int(Path("main.txt").read_text()), signal.{signal})
        threading.Event().wait()
    gpuperf(int)
"""

MAIN = """
import os
from pathlib import Path
def pytest_configure():
    if not Path("main.txt").exists():
        Path("main.txt").write_text(str(os.getpid()))
"""


@pytest.fixture
def killed(project: ScriptedProject) -> ScriptedProject:
    project.pytester.makeconftest(MAIN)
    return project


@pytest.mark.parametrize(
    ("name", "status", "workers"),
    [
        ("SIGINT", 2, ()),
        ("SIGTERM", 2, ()),
        ("SIGTERM", 2, ("-p", "xdist", "-n1")),
        ("SIGKILL", -signal.SIGKILL, ()),
    ],
)
def test_a_refresh_that_is_killed_keeps_what_was_complete(
    killed: ScriptedProject, name: str, status: int, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    killed.file(KILLS.format(run=8, signal=name))

    result = killed.pytester.runpytest_subprocess(
        *workers, *ON, "--gpuperf-update=missing"
    )

    assert result.ret == status
    stored = {test: len(e["runs"]) for test, e in killed.entries().items()}
    second = {"test_it.py::test_second": 7} if status == 2 else {}
    assert stored == {"test_it.py::test_first": 8, **second}
    if status == 2:
        result.stdout.fnmatch_lines(["gpuperf: interrupted: 2 tests are stored in *"])
    (killed.path / "runs.txt").write_text("." * 8)
    (killed.path / "main.txt").unlink()
    killed.refresh().assert_outcomes(passed=2)
    assert {len(e["runs"]) for e in killed.entries().values()} <= {7, 8}


THREE = """
def test_first(gpuperf): gpuperf(int)
def test_second(gpuperf): assert 0
def test_third(gpuperf): open("third.txt", "w"); gpuperf(int)
"""


@pytest.mark.parametrize(
    "arguments", [("-x",), ("-x", "-p", "xdist.plugin", "-n1")], ids=" ".join
)
def test_x_says_calmly_what_was_not_measured(
    project: ScriptedProject, arguments: tuple[str, ...]
) -> None:
    project.file(THREE)

    result = project.run(*arguments)

    assert result.ret == (2 if "-n1" in arguments else 1)
    assert not (project.path / "third.txt").exists()
    shown = "1 not measured (stopped after the first failure): test_it.py::test_third"
    assert result.stdout.str().count(shown) == 1
    assert "WITHOUT A RESULT" not in result.stdout.str()


# Progress without a terminal.


class Reporter:
    """A terminal reporter whose lines are kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.write_line = self.lines.append

    def ensure_newline(self) -> None:
        """Stand at the beginning of a line."""


@dataclass
class Config:
    """As much of pytest's as matters to who writes progress."""

    verbosity: int
    reporter: Reporter | None = field(default_factory=Reporter)

    @property
    def pluginmanager(self) -> Config:
        return self

    def get_plugin(self, _: str) -> Reporter | None:
        return self.reporter

    def get_verbosity(self) -> int:
        return self.verbosity


@pytest.mark.parametrize(
    ("verbosity", "environ", "seconds"),
    [
        (0, {}, 10.0),
        (0, {"CI": "true"}, 10.0),
        (0, {"TERM": "dumb"}, 10.0),
        (1, {"CI": "true"}, 2.0),
        (2, {}, 2.0),
    ],
    ids=["a pipe", "CI", "a dumb terminal", "CI and -v", "a pipe and -vv"],
)
def test_a_run_of_minutes_never_looks_dead_in_a_log(
    monkeypatch: pytest.MonkeyPatch,
    verbosity: int,
    environ: dict[str, str],
    seconds: float,
) -> None:
    clock = [0.0]
    defaults = (lambda: clock[0],)
    monkeypatch.setattr(LogLines.__init__, "__defaults__", defaults)
    is_terminal = SimpleNamespace(isatty=lambda: bool(environ))
    monkeypatch.setattr("pytest_gpuperf.plugin.session.sys.stdout", is_terminal)
    config = Config(verbosity)
    line = live_line(cast("pytest.Config", config), environ)
    assert isinstance(line, LogLines)
    assert config.reporter is not None

    for tick in range(61):
        clock[0] = float(tick)
        line.show(f"second {tick}")

    due = range(int(seconds), 61, int(seconds))
    assert config.reporter.lines == [f"second {tick}" for tick in due]


@pytest.mark.parametrize(
    "config",
    [Config(-1), Config(-2), Config(0, None)],
    ids=["-q", "-qq", "no terminal"],
)
def test_who_asks_for_less_gets_no_progress(config: Config) -> None:
    assert live_line(cast("pytest.Config", config), {}) is None
