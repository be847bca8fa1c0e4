"""The command ``gpuperf``: whole outputs, exact command lines."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from pytest_gpuperf.cli import COMMANDS, GROUPS, main


@pytest.fixture(autouse=True)
def in_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that were started; each ends with code 1."""
    commands: list[list[str]] = []

    def run(
        command: Sequence[str], *, check: bool
    ) -> subprocess.CompletedProcess[bytes]:
        assert check is False
        commands.append(list(command))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


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
            ("t.py::a", "all t.py::a"),
            ("-x t.py::a", "all -x t.py::a"),
            ("t.py -v", "all t.py -v"),
            ("tests -v", "missing tests -v"),
            ("--deselect t.py::a t.py", "all --deselect t.py::a t.py"),
            ("--deselect t.py::a tests", "missing --deselect t.py::a tests"),
            ("--ignore t.py", "missing --ignore t.py"),
            ("--deselect=t.py::a", "missing --deselect=t.py::a"),
            ("--accept-drift t.py::a", "drift t.py::a"),
            ("--accept-drift t.py", "drift t.py"),
            ("--accept-drift", "drift"),
            (
                "--accept-drift --deselect=t.py::a",
                "drift --deselect=t.py::a",
            ),
            ("t.py::a --kind improved", "improved t.py::a"),
            ("--kind=improved -n2", "improved -n2"),
            (
                "-k 'a or b' --device cpu t.py",
                "all --gpuperf-device=cpu -k 'a or b' t.py",
            ),
        ],
    )
    def test_takes_what_regressed_only_where_that_is_meant(
        self,
        started: list[list[str]],
        given: str,
        passed: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        main(["refresh", *shlex.split(given)])

        command = shlex.split(f"-m pytest --gpuperf --gpuperf-update={passed}")
        assert started == [[sys.executable, *command]]
        says = "gpuperf: refreshing what has no baseline; name tests or files, or"
        assert capsys.readouterr().out.startswith(says) == passed.startswith("missing")

    def test_measures_once_a_session_with_a_gap_between_them(
        self,
        started: list[list[str]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        slept: list[float] = []
        monkeypatch.setattr("pytest_gpuperf.cli.refresh.time.sleep", slept.append)

        code = main(["refresh", "--sessions", "3", "--gap=90", "t.py"])

        measured = [sys.executable, "-m", "pytest", "--gpuperf"]
        assert code == 1
        assert started == [[*measured, "--gpuperf-update=evidence", "t.py"]] * 3
        assert slept == [5400.0] * 2
        assert capsys.readouterr().out.splitlines() == [
            f"gpuperf: {number} of 3 sessions are over, the next begins in 90 minutes; "
            "Ctrl-C keeps what is stored"
            for number in (1, 2)
        ]

    def test_replaces_in_the_first_session_alone(
        self, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_gpuperf.cli.refresh.time.sleep", lambda _: None)

        main(["refresh", "--kind=all", "--sessions=2"])

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

        assert main(["refresh", "--sessions=3"]) == 130
        assert len(started) == 1
        assert capsys.readouterr().out.splitlines()[-1] == (
            "gpuperf: 1 of 3 sessions are over; the same command adds more, also on "
            "another day"
        )

    def test_no_session_follows_a_run_that_broke_off(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ended = subprocess.CompletedProcess("", 2)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)

        assert main(["refresh", "--sessions=3"]) == 2

    @pytest.mark.parametrize(
        "given", [["--sessions=0"], ["--sessions=x"], ["--gap=29"], ["--gap=inf"]]
    )
    def test_refuses_what_is_no_number_of_sessions_or_minutes(
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

    @pytest.mark.parametrize("other", ["--kind=improved", "--sessions=2"])
    def test_accepts_drift_of_all_or_of_nothing(
        self, started: list[list[str]], other: str
    ) -> None:
        assert main(["refresh", "--accept-drift", other]) == 4
        assert started == []

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


GOES = "arguments of {} go after `--` (did you mean"


@pytest.mark.parametrize(
    ("typed", "refused"),
    [
        ("accept x --zzz", "unrecognized arguments: --zzz"),
        (
            "accept x --dryrun",
            "unrecognized arguments: --dryrun (did you mean --dry-run?)",
        ),
        (
            "audit train.py --max-sync=3",
            f"unexpected --max-sync=3: {GOES.format('the script')} --max-syncs?)",
        ),
        (
            "ab --whitch",
            f"unexpected --whitch: {GOES.format('pytest')} --which?)",
        ),
    ],
)
def test_an_argument_that_no_command_knows_is_refused(
    capsys: pytest.CaptureFixture[str], typed: str, refused: str
) -> None:
    command, *rest = typed.split()

    code = main([command, *rest])

    assert code == (125 if command == "ab" else 4)
    assert capsys.readouterr().err == (
        f"gpuperf: {refused}; see `gpuperf {command} --help` [GP102]\n"
    )


def test_the_help_lists_each_command_once_by_what_it_is_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main([])

    shown = capsys.readouterr().out
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
    named = [name for name in listed if not name.startswith("-")]
    assert named[:7] == [
        *("audit", "memory", "doctor", "report", "ab", "refresh", "accept")
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
        ("docter", "did you mean `gpuperf doctor`? `gpuperf --help` lists all"),
        ("referesh", "did you mean `gpuperf refresh`? `gpuperf --help` lists all"),
        ("xyz", "`gpuperf --help` lists all"),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(
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


def test_the_package_runs_as_the_command() -> None:
    said = run_python("-m", "pytest_gpuperf", "--version")

    assert said == f"pytest-gpuperf {version('pytest-gpuperf')}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_nothing_heavy(name: str) -> None:
    module = f"pytest_gpuperf.cli.{name.replace('-', '_')}"
    heavy = "{'torch', 'numpy', 'pynvml'}"
    code = f"import sys, {module}; print({heavy} & set(sys.modules))"

    assert run_python("-c", code) == "set()\n"


def test_the_help_imports_no_command() -> None:
    code = (
        "import sys; from pytest_gpuperf.cli import main; main([]); "
        "print({'pytest_gpuperf.judge', 'pytest_gpuperf.report', 'pytest_gpuperf.cli.accept'} "
        "& set(sys.modules))"
    )

    assert run_python("-c", code).endswith("\nset()\n")
