"""The command ``gpuperf``: whole outputs, exact command lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from builders import CPU
from builders import H200
from builders import an_entry
from builders import save

from pytest_gpuperf.baselines.store import path_of
from pytest_gpuperf.baselines.store import pending_path
from pytest_gpuperf.cli import COMMANDS
from pytest_gpuperf.cli import GROUPS
from pytest_gpuperf.cli import main
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.baseline import Judged
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.plugin.options import OPTIONS


def store(folder: Path, hardware: Hardware, **entries: Entry) -> Path:
    return save(path_of(folder, hardware), hardware, **entries)


def leave_pending(folder: Path, hardware: Hardware, **entries: Entry) -> Path:
    return save(pending_path(folder, hardware), hardware, **entries)


@pytest.fixture(autouse=True)
def in_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that were started; each ends with code 1."""
    commands: list[list[str]] = []

    def run(
        command: Sequence[str], *, check: bool, stdout: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        assert check is False
        commands.append(list(command))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


class TestHelp:
    def test_a_command_is_explained_as_it_does_itself(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        said = []
        for typed in (["help", "diff"], ["diff", "--help"]):
            with pytest.raises(SystemExit):
                main(typed)
            said.append(capsys.readouterr().out)

        assert said[0] == said[1]
        assert said[0].startswith("usage: gpuperf diff")

    def test_all_options_and_ini_keys_are_listed(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")

        assert main(["help", "options"]) == 0

        said = capsys.readouterr().out
        lines = [line.strip() for line in said.splitlines()]
        for option in OPTIONS:
            first = option.flag if option.on_command_line else option.name
            assert any(line.partition("=")[0].strip() == first for line in lines)
            assert option.help in " ".join(lines)
        assert max(map(len, said.splitlines())) <= 80

    def test_what_is_no_command_is_refused(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["help", "audti"]) == 4

        assert "did you mean `gpuperf audit`?" in capsys.readouterr().err


class TestRefresh:
    def test_refreshes_what_is_missing(self, started: list[list[str]]) -> None:
        code = main(["refresh"])

        assert code == 1
        assert started == [
            [sys.executable, "-m", "pytest", "--gpuperf", "--gpuperf-update=missing"]
        ]

    @pytest.mark.parametrize(
        ("given", "passed"),
        [
            (["t.py::a"], ["--gpuperf-update=all", "t.py::a"]),
            (["-x", "t.py::a"], ["--gpuperf-update=all", "-x", "t.py::a"]),
            (["t.py", "-v"], ["--gpuperf-update=missing", "t.py", "-v"]),
            (
                ["--deselect", "t.py::a", "t.py"],
                ["--gpuperf-update=missing", "--deselect", "t.py::a", "t.py"],
            ),
            (
                ["--deselect=t.py::a"],
                ["--gpuperf-update=missing", "--deselect=t.py::a"],
            ),
            (
                ["--accept-drift", "t.py::a"],
                ["--gpuperf-update=all", "--gpuperf-accept-drift", "t.py::a"],
            ),
            (
                ["--accept-drift", "t.py"],
                ["--gpuperf-update=all", "--gpuperf-accept-drift", "t.py"],
            ),
            (["--accept-drift"], ["--gpuperf-update=all", "--gpuperf-accept-drift"]),
            (
                ["--accept-drift", "--deselect=t.py::a"],
                [
                    "--gpuperf-update=all",
                    "--gpuperf-accept-drift",
                    "--deselect=t.py::a",
                ],
            ),
            (
                ["--accept-drift", "--kind=missing"],
                ["--gpuperf-update=missing", "--gpuperf-accept-drift"],
            ),
            (
                ["t.py::a", "--kind", "improved"],
                ["--gpuperf-update=improved", "t.py::a"],
            ),
            (["--kind=improved", "-n2"], ["--gpuperf-update=improved", "-n2"]),
            (
                ["-k", "a or b", "--device", "cpu", "t.py"],
                [
                    "--gpuperf-update=missing",
                    "--gpuperf-device=cpu",
                    *("-k", "a or b", "t.py"),
                ],
            ),
        ],
    )
    def test_takes_what_regressed_only_where_that_is_meant(
        self, started: list[list[str]], given: list[str], passed: list[str]
    ) -> None:
        main(["refresh", *given])

        assert started == [[sys.executable, "-m", "pytest", "--gpuperf", *passed]]

    def test_measures_once_an_occasion_with_a_gap_between_them(
        self,
        started: list[list[str]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        slept: list[float] = []
        monkeypatch.setattr("pytest_gpuperf.cli.refresh.time.sleep", slept.append)

        code = main(["refresh", "--occasions", "3", "--gap=90", "t.py"])

        measured = [sys.executable, "-m", "pytest", "--gpuperf"]
        assert code == 1
        assert started == [[*measured, "--gpuperf-update=evidence", "t.py"]] * 3
        assert slept == [5400.0] * 2
        assert capsys.readouterr().out.splitlines() == [
            f"gpuperf: {number} of 3 occasions are over, the next begins in 90 minutes; "
            "Ctrl-C keeps what is stored"
            for number in (1, 2)
        ]

    def test_replaces_in_the_first_occasion_alone(
        self, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_gpuperf.cli.refresh.time.sleep", lambda _: None)

        main(["refresh", "--kind=all", "--occasions=2"])

        assert [command[-1] for command in started] == [
            "--gpuperf-update=all",
            "--gpuperf-update=evidence",
        ]

    def test_what_is_stored_stays_where_ctrl_c_ends_the_gap(
        self,
        started: list[list[str]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("pytest_gpuperf.cli.refresh.time.sleep", interrupt)

        assert main(["refresh", "--occasions=3"]) == 130
        assert len(started) == 1
        assert capsys.readouterr().out.splitlines()[-1] == (
            "gpuperf: 1 of 3 occasions are over; the same command adds more, also on "
            "another day"
        )

    def test_no_occasion_follows_a_run_that_broke_off(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ended = subprocess.CompletedProcess("", 2)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)

        assert main(["refresh", "--occasions=3"]) == 2

    @pytest.mark.parametrize(
        "given", [["--occasions=0"], ["--occasions=x"], ["--gap=29"], ["--gap=inf"]]
    )
    def test_refuses_what_is_no_number_of_occasions_or_minutes(
        self, given: list[str]
    ) -> None:
        assert main(["refresh", *given]) == 4

    def test_refuses_a_kind_that_does_not_exist(
        self, started: list[list[str]], capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = main(["refresh", "--kind", "some"])

        assert code == 4
        assert started == []
        assert capsys.readouterr().err == (
            "gpuperf: argument --kind: expected one of missing, improved, all, evidence, "
            "found 'some'; see `gpuperf refresh --help` [GP102]\n"
        )

    def test_gives_the_code_of_a_killed_pytest_as_a_shell_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed: subprocess.CompletedProcess[bytes]
        killed = subprocess.CompletedProcess([], -signal.SIGKILL)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)

        assert main(["refresh"]) == 137

    def test_outlives_ctrl_c_and_gives_pytests_code(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
            os.kill(os.getpid(), signal.SIGINT)
            return subprocess.CompletedProcess([], 2)

        before = signal.getsignal(signal.SIGINT)
        monkeypatch.setattr(subprocess, "run", interrupted)

        assert main(["refresh"]) == 2
        assert signal.getsignal(signal.SIGINT) is before

    def test_says_in_its_help_which_kind_it_chooses(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")

        with pytest.raises(SystemExit) as left:
            main(["refresh", "--help"])

        text = capsys.readouterr().out
        assert left.value.code == 0
        assert text.splitlines()[0] == (
            "usage: gpuperf refresh [options] [pytest arguments...]"
        )
        assert (
            "baselines to replace: missing, improved, all, evidence "
            "(default: all if node ids are named or drift is accepted, else missing)"
        ) in text


class TestShow:
    def test_shows_the_only_hardware(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        memory = {"peak_allocated_bytes": 38_063_309, "syncs": 2}
        store(
            tmp_path / "baselines",
            H200,
            test_b=an_entry(10.0, 10.3, 10.1, exact=memory),
            test_a=an_entry(0.25, software={}),
            test_c=an_entry(None, exact={"live_peak_bytes": 512}),
        )

        code = main(["show", "-v"])

        assert code == 0
        assert capsys.readouterr().out == (
            """\
NVIDIA H200 (cuda), baselines/cuda-nvidia-h200.json
    time  spread     memory  waits  runs  torch   test
250.0 us       -          -      -     1  -       test_a
10.12 ms   3.0 %  36.30 MiB      2     3  2.13.0  test_b
       -       -      512 B      -     1  2.13.0  test_c
"""
        )

    def test_shows_what_drifted_from_its_anchor(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        then = {"step_ms": 10.0, "syncs": 2, "peak_allocated_bytes": 2**20}
        store(
            tmp_path / "baselines",
            H200,
            test_a=an_entry(10.15, exact={"syncs": 1}, anchor=then),
            test_b=an_entry(10.0, exact={"syncs": 2}, anchor=then),
        )

        code = main(["show"])

        assert code == 0
        assert capsys.readouterr().out == (
            """\
NVIDIA H200 (cuda), baselines/cuda-nvidia-h200.json
    time  spread  memory  waits  runs  since accepted            test
10.15 ms       -       -      1     1  step_ms +1.5 %, syncs -1  test_a
10.00 ms       -       -      2     1                            test_b
"""
        )

    def test_shows_so_many_tests_and_all_of_them_when_asked(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        many = {f"test_{number:02}": an_entry(1.0) for number in range(42)}
        store(tmp_path / "baselines", H200, **many)

        main(["show"])
        short = capsys.readouterr().out.splitlines()
        main(["show", "-v"])

        assert short[-2:] == [
            "1.000 ms       -       -      -     1  test_39",
            "and 2 more, with -v",
        ]
        assert capsys.readouterr().out.splitlines()[-1].endswith("  test_41")

    def test_lists_the_files_where_there_are_several(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store(tmp_path / "baselines", H200, test_a=an_entry(1.0), test_b=an_entry(1.0))
        store(tmp_path / "baselines", CPU, test_a=an_entry(1.0))

        code = main(["show"])

        assert code == 0
        assert capsys.readouterr().out == (
            """\
tests  hardware
    1  cpu-amd-epyc-2-cores
    2  cuda-nvidia-h200
show one with `gpuperf show HARDWARE`
"""
        )

    def test_shows_the_hardware_that_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store(tmp_path / "perf", H200, test_a=an_entry(1.0), test_b=an_entry(1.0))
        store(tmp_path / "perf", CPU, test_a=an_entry(2.0, 2.0))

        code = main(["show", "--baselines", "perf", "cpu-amd-epyc-2-cores"])

        assert code == 0
        assert capsys.readouterr().out == (
            """\
AMD EPYC 2 cores (cpu), perf/cpu-amd-epyc-2-cores.json
    time  spread  memory  waits  runs  test
2.000 ms   0.0 %       -      -     2  test_a
"""
        )

    def test_names_the_hardware_that_there_is(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store(tmp_path / "baselines", H200)
        store(tmp_path / "baselines", CPU)

        code = main(["show", "h100"])

        assert code == 4
        assert capsys.readouterr().err == (
            "gpuperf: no baselines for 'h100'; "
            "expected one of cpu-amd-epyc-2-cores, cuda-nvidia-h200 [GP509]\n"
        )

    def test_says_how_to_record_the_first(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = main(["show"])

        assert code == 4
        assert capsys.readouterr().err == (
            "gpuperf: no baselines in baselines: record them with `pytest --gpuperf "
            "--gpuperf-update=missing`, or name their folder with --baselines [GP509]\n"
        )

    def test_names_the_file_that_is_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store(tmp_path / "baselines", H200).write_text("", "utf-8")

        code = main(["show"])

        assert code == 4
        assert capsys.readouterr().err == (
            "gpuperf: baselines/cuda-nvidia-h200.json: the file is empty; restore the "
            "file from version control, or delete it and record it again with "
            "--gpuperf-update=all [GP502]\n"
        )

    def test_names_the_file_that_cannot_be_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "baselines" / "cpu.json").mkdir(parents=True)

        code = main(["show"])

        assert code == 4
        assert capsys.readouterr().err == (
            "gpuperf: baselines/cpu.json: cannot be read ([Errno 21] Is a directory: "
            "'baselines/cpu.json'); expected a baseline file [GP501]\n"
        )


class TestDiff:
    def test_compares_what_was_measured_last_with_what_is_stored(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store(
            tmp_path / "baselines",
            H200,
            test_a=an_entry(10.0, exact={"syncs": 1}),
            test_same=an_entry(1.0),
            test_not_run=an_entry(1.0),
        )
        leave_pending(
            tmp_path / ".gpuperf",
            H200,
            test_a=an_entry(12.03, exact={"syncs": 1}),
            test_same=an_entry(1.0),
            test_new=an_entry(2.0),
        )

        code = main(["diff"])

        assert code == 0
        assert capsys.readouterr().out == (
            """\
baselines/cuda-nvidia-h200.json -> .gpuperf/pending-cuda-nvidia-h200.json
     old       new   change  metric   test
10.00 ms  12.03 ms  +20.3 %  step_ms  test_a
       -  2.000 ms      new  step_ms  test_new
gpuperf: nothing was written; `gpuperf accept` would accept 1; 1 of them from
    fewer than 5 runs, too few to know how it varies: test_new; 1 kept, moved
    less than the noise; 1 NOT ACCEPTED, too far from the last accepted value:
    test_a; with --accept-drift it would accept these as well
"""
        )

    def test_says_why_its_time_is_not_that_of_the_table_of_the_run(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store(tmp_path / "baselines", H200, test_a=an_entry(10.0))
        leave_pending(
            tmp_path / ".gpuperf", H200, test_a=an_entry(12.0, 12.1, 12.1, 14.0)
        )

        main(["diff"])

        text = " ".join(capsys.readouterr().out.split())
        assert "10.00 ms 12.10 ms +21.0 % step_ms test_a" in text
        assert (
            "times: what the baseline file has or would have, typical of all runs; the "
            "table of a run shows the mean of those that were judged"
        ) in text

    @pytest.mark.parametrize("disturbed", [True, False])
    def test_names_the_tests_whose_times_were_disturbed(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        disturbed: bool,
    ) -> None:
        store(tmp_path / "baselines", H200, test_a=an_entry(10.0), test_b=an_entry(1.0))
        shaken = replace(an_entry(34.2), judged=Judged(disturbed=disturbed))
        leave_pending(tmp_path / ".gpuperf", H200, test_a=shaken, test_b=an_entry(2.0))

        main(["diff"])

        shown = capsys.readouterr().out
        said = "* disturbed, times may be too long: test_a; measure again\n"
        assert (said in shown) is disturbed
        assert ("  *+" in shown) is disturbed

    def test_shows_the_largest_changes_and_all_of_them_when_asked(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        names = [f"test_{number:02}" for number in range(25)]
        store(tmp_path / "baselines", H200, **{n: an_entry(10.0) for n in names})
        now = {n: an_entry(10.0 + number) for number, n in enumerate(names, start=1)}
        leave_pending(tmp_path / ".gpuperf", H200, **now)

        main(["diff"])
        short = capsys.readouterr().out
        main(["diff", "-v"])
        everything = capsys.readouterr().out

        assert "test_04\n" not in short
        assert "test_05\n" in short
        assert "and 5 more, with -v\n" in short
        assert all(f"{name}\n" in everything for name in names)

    def test_shows_the_drift_of_what_was_measured_last(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        anchor = {"step_ms": 10.0}
        store(tmp_path / "baselines", H200, test_a=an_entry(10.2, anchor=anchor))
        leave_pending(
            tmp_path / ".gpuperf", H200, test_a=an_entry(10.25, anchor=anchor)
        )

        code = main(["diff"])

        assert code == 0
        assert capsys.readouterr().out == (
            """\
baselines/cuda-nvidia-h200.json -> .gpuperf/pending-cuda-nvidia-h200.json
     old       new  change   drift  metric   test
10.20 ms  10.25 ms  +0.5 %  +2.5 %  step_ms  test_a
gpuperf: nothing was written; `gpuperf accept` would accept 0; 1 kept, moved
    less than the noise
"""
        )

    def test_says_where_nothing_differs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store(tmp_path / "perf", H200, test_a=an_entry(10.0))
        leave_pending(tmp_path / "last", H200, test_a=an_entry(10.0))
        leave_pending(tmp_path / "last", CPU, test_a=an_entry(1.0))

        code = main(["diff", "--baselines=perf", "--pending=last"])

        assert code == 0
        assert capsys.readouterr().out == (
            """\
perf/cpu-amd-epyc-2-cores.json -> last/pending-cpu-amd-epyc-2-cores.json
old       new  change  metric   test
  -  1.000 ms     new  step_ms  test_a
gpuperf: nothing was written; `gpuperf accept` would accept 1; 1 of them from
    fewer than 5 runs, too few to know how it varies: test_a
nothing pending in last/pending-cuda-nvidia-h200.json: it says the same as perf/cuda-nvidia-h200.json
"""
        )

    def test_says_that_nothing_is_pending(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = main(["diff"])

        assert code == 0
        assert capsys.readouterr().out == (
            "nothing pending in .gpuperf: run `pytest --gpuperf` first\n"
        )

    def test_names_the_pending_file_that_is_cut_off(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = leave_pending(tmp_path / ".gpuperf", H200, test_a=an_entry(1.0))
        path.write_text(path.read_text("utf-8")[:-3], "utf-8")

        code = main(["diff"])

        assert code == 4
        assert capsys.readouterr().err == (
            "gpuperf: .gpuperf/pending-cuda-nvidia-h200.json: the file is cut off at "
            "line 17; measure again with `pytest --gpuperf`, or download the file again [GP502]\n"
        )


def test_an_argument_that_no_command_knows_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["diff", "--base", "x"])

    assert code == 4
    assert capsys.readouterr().err == (
        "gpuperf: unrecognized arguments: --base; see `gpuperf diff --help` [GP102]\n"
    )


def test_the_help_lists_each_command_once_by_what_it_is_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main([])

    shown = capsys.readouterr().out
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
    named = [name for name in listed if not name.startswith("-")]
    assert named[:8] == [
        *("audit", "memory", "doctor", "report", "ab", "refresh", "diff", "accept")
    ]
    assert sorted(named) == sorted(COMMANDS)
    titles = [f"{title}:" for title in GROUPS]
    assert [line for line in shown.splitlines() if line in titles] == titles
    assert max(map(len, shown.splitlines())) <= 80
    # With the group of pytest's help, 60 are the bar.
    assert len(shown.splitlines()) <= 30


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: gpuperf")


def test_it_names_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert left.value.code == 0
    assert capsys.readouterr().out == f"pytest-gpuperf {version('pytest-gpuperf')}\n"


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("shwo", "did you mean `gpuperf show`? `gpuperf --help` lists all"),
        ("referesh", "did you mean `gpuperf refresh`? `gpuperf --help` lists all"),
        ("xyz", "`gpuperf --help` lists all"),
    ],
)
def test_a_mistyped_command_is_told_what_was_meant(
    typed: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 4
    assert capsys.readouterr().err == (
        f"gpuperf: there is no command {typed!r}; {sentence} [GP103]\n"
    )


def run_python(*arguments: str) -> str:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    ).stdout


@pytest.mark.parametrize(
    ("command", "folder"), [("show", "baselines"), ("diff", ".gpuperf")]
)
def test_a_command_that_finds_nothing_names_a_folder_above_it(
    command: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path / "tests")

    main([command])

    said = capsys.readouterr()
    assert "; there is one in .., where pytest" in said.out + said.err


def test_a_folder_above_the_repository_belongs_to_another_project(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".gpuperf").mkdir()
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "clone")

    main(["diff"])

    assert "there is one in" not in capsys.readouterr().out


def test_the_package_runs_as_the_command() -> None:
    assert run_python("-m", "pytest_gpuperf", "diff") == (
        "nothing pending in .gpuperf: run `pytest --gpuperf` first\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_nothing_heavy(name: str) -> None:
    module = f"pytest_gpuperf.cli.{name.replace('-', '_')}"
    heavy = "{'torch', 'numpy', 'pynvml'}"
    code = f"import sys, {module}; print({heavy} & set(sys.modules))"

    assert run_python("-c", code) == "set()\n"


def test_the_help_imports_no_command() -> None:
    code = (
        "import sys; from pytest_gpuperf.cli import main; main([]); "
        "print({'pytest_gpuperf.judge', 'pytest_gpuperf.report', 'pytest_gpuperf.cli.show'} "
        "& set(sys.modules))"
    )

    assert run_python("-c", code).endswith("\nset()\n")
