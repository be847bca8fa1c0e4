"""``--gpuperf-ref``: what the stored baseline does not pass is settled by A/B."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import SCRIPTED
from builders import USUAL
from builders import an_entry
from builders import baselines
from builders import save
from git_project import GitProject
from scripted_project import ON
from witness import PATIENCE_SECONDS
from witness import Witness

from pytest_gpuperf.baselines.format import dumps
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.baseline import Origin


TEST = "test_it.py::test_step"
FINE = "test_it.py::test_fine"
STEP = "def test_step(gpuperf): gpuperf(int)\n"
BUDGET = "import pytest_gpuperf as gpuperf\n@gpuperf.budget(ms=5, on='scripted')\n"

SAME = """\
a change of 3 % or more is ruled out: time +0.0 %, 95 % interval -0.4 % to +0.4 %; \
t-test over 3 pairs of processes"""

ENGINE = "pairs of fresh processes in alternating order"

STALE = """\
the baseline is out of date, and not by this change: the machine changed, or the code \
had before it; refresh it here"""


def entry(
    *step_ms: float, torch: str = "2.13.0", origin: Origin | None = None
) -> Entry:
    times, software = step_ms or [10.0] * 8, {"torch": torch}
    return an_entry(*times, exact=USUAL, software=software, origin=origin)


def words(result: pytest.RunResult) -> str:
    """What was printed, however it was wrapped."""
    return " ".join(result.stdout.str().split())


class RefProject:
    """A project under git, a baseline of 10 ms, and pytest in its folder."""

    def __init__(self, pytester: pytest.Pytester, git: GitProject) -> None:
        self._pytester = pytester
        self.git = git
        self.git.write(".gitignore", "__pycache__\n.pytest_cache\n")
        self.store(**{TEST: entry()})
        self.base = git.commit()

    def store(self, **entries: Entry) -> None:
        self.git.write("baselines/scripted.json", dumps(baselines(SCRIPTED, **entries)))

    def run(self, *arguments: str) -> pytest.RunResult:
        return self._pytester.runpytest_inprocess(*ON, *arguments)

    def commit_again(self) -> None:
        """Move HEAD away from the base, so that there is something to compare."""
        self.git.git("tag", "base")
        self.git.write("README", "more\n")
        self.git.commit()


@pytest.fixture
def project(
    pytester: pytest.Pytester, project_of_commits: GitProject
) -> Iterator[RefProject]:
    return RefProject(pytester, project_of_commits)


class TestVerdicts:
    def test_code_that_is_slower_than_the_reference_regressed(
        self, project: RefProject, temporary: Path
    ) -> None:
        project.git.script(step_ms=11.0)

        result = project.run("--gpuperf-ref=main")

        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                (
                    f"gpuperf: A/B against main ({project.base}), for 1 test that did not "
                    "pass"
                ),
                "gpuperf: pair 1 of at most 8: 1 test",
                "gpuperf: pair 2 of at most 8: 1 test",
                "gpuperf: pair 3 of at most 8: 1 test",
                "gpuperf: pair 4 of at most 8: 1 test",
                "gpuperf: pair 5 of at most 8: 1 test",
                "SLOWER: 11.00 ms per step, was 10.00 ms (+10.0 %)",
                (
                    f"  sure?    A/B against main ({project.base}), pairs of fresh "
                    "processes in alternating"
                ),
                (
                    "           order: after is slower by more than 1 %: time +10.0 %, "
                    "95 % interval"
                ),
                ("           +9.7 % to +10.3 %; t-test over 5 pairs of processes"),
                f"  again    gpuperf ab main -- --gpuperf-device=scripted {TEST}",
                f"  accept   gpuperf refresh --accept-drift --device=scripted {TEST}",
                "gpuperf: 1 failed (1 worse) on scripted",
            ],
            consecutive=False,
        )
        assert project.git.is_untouched
        assert list(temporary.iterdir()) == []

    def test_a_machine_that_changed_blames_nobody(self, project: RefProject) -> None:
        project.git.script(step_ms=11.0)
        project.commit_again()
        project.git.write("README", "and more\n")

        result = project.run("--gpuperf-ref=HEAD")

        result.assert_outcomes(passed=1)
        assert f"{ENGINE}: {SAME}; {STALE}" in words(result)
        result.stdout.fnmatch_lines(
            [
                f"11.00 ms  10.00 ms  +10.0 %      0  100.0 MiB  passed   {TEST}",
                "gpuperf: 1 passed on scripted",
            ]
        )

    def test_what_passes_the_baseline_is_compared_with_nothing(
        self, project: RefProject
    ) -> None:
        project.commit_again()

        result = project.run("--gpuperf-ref=base")

        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line("*A/B*")

    def test_budgets_and_exact_metrics_are_no_matter_of_other_code(
        self, project: RefProject
    ) -> None:
        project.git.tests(BUDGET + STEP)
        project.git.script(step_ms=11.0, syncs=1)
        project.commit_again()
        project.git.write("README", "and more\n")

        result = project.run("--gpuperf-ref=HEAD")

        result.assert_outcomes(failed=1)
        assert STALE in words(result)
        result.stdout.fnmatch_lines(
            [
                "OVER LIMIT ms: 11.00 ms per step, limit 5.000 ms",
                "NEW WAIT: 1 per step, was 0 (+1), allowed 0",
                "gpuperf: 1 failed (1 worse) on scripted",
            ]
        )


class TestUnsettled:
    SLOWER = "*+10.0 % (95 %: +9.6 % to +10.4 %), more than 1 % slower at p = 2e-10;*"

    @pytest.mark.parametrize(
        ("before", "why"),
        [
            ("def test_old(gpuperf): gpuperf(int)\n", "it is new since then"),
            (
                "def test_step(gpuperf): raise ValueError('no')\n",
                "failed before: ValueError: no",
            ),
            (
                "def test_step(gpuperf): gpuperf(int, name='other')\n",
                "it is new since then",
            ),
        ],
    )
    def test_what_the_reference_cannot_answer_is_judged_by_the_baseline(
        self, project: RefProject, before: str, why: str
    ) -> None:
        project.git.tests(before)
        base = project.git.commit()
        project.git.tests(STEP)
        project.git.script(step_ms=11.0)

        result = project.run("--gpuperf-ref=HEAD")

        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "SLOWER: 11.00 ms per step, was 10.00 ms (+10.0 %), allowed 10.15 ms",
                "gpuperf: 1 failed (1 worse) on scripted",
            ]
        )
        assert f"not decided by A/B against HEAD ({base}): {why} " in words(result)
        result.stdout.no_fnmatch_line("  again *")

    def test_nor_is_one_asked_whose_tests_cannot_be_imported(
        self, project: RefProject
    ) -> None:
        project.git.tests("import nowhere\n")
        base = project.git.commit()
        project.git.tests(STEP)
        project.git.script(step_ms=11.0)

        result = project.run("--gpuperf-ref=HEAD")

        result.assert_outcomes(failed=1)
        said = words(result)
        assert (
            f"not decided by A/B against HEAD ({base}): cannot collect its tests: "
            "test_it.py: ModuleNotFoundError: No module named 'nowhere' [GP708] accept "
        ) in said

    def test_a_file_that_is_new(self, project: RefProject) -> None:
        project.git.write("test_new.py", "def test_new(gpuperf): gpuperf(int)\n")

        result = project.run("--gpuperf-ref=main", "test_new.py")

        result.assert_outcomes(passed=1, warnings=1)
        assert (
            "step time: no baseline and no budget; not decided by "
            f"A/B against main ({project.base}): cannot collect its tests: it has no "
            "test_new.py [GP708]"
        ) in words(result)

    def test_code_is_not_compared_with_itself(self, project: RefProject) -> None:
        """After a merge that would pass whatever was merged."""
        project.git.script(step_ms=11.0)
        base = project.git.commit()

        result = project.run("--gpuperf-ref=main")

        result.assert_outcomes(failed=1)
        assert (
            f"not decided by A/B against main ({base}): that is the code which is "
            "measured here"
        ) in words(result)


NOISY = (7.0, 8.0, 9.0, 9.5, 10.5, 11.0, 12.0, 13.0)
"""Stored runs of about 10 ms that can decide nothing within 3 %."""


class TestAuto:
    """The default: stored numbers decide where they can, other code where they cannot."""

    ASKED = "*A/B against {}, for 1 test with a time that stored runs cannot decide*"

    @pytest.fixture
    def noisy(self, project: RefProject) -> RefProject:
        """A baseline that names its commit, and scatters; something is committed since."""
        commit = project.git.git("rev-parse", "HEAD")
        project.store(**{TEST: entry(*NOISY, origin=Origin(commit=commit))})
        project.commit_again()
        return project

    @pytest.mark.parametrize("ci", ["", "1"], ids=["locally", "in CI"])
    def test_a_baseline_that_scatters_leaves_it_to_the_code_it_is_of(
        self, noisy: RefProject, monkeypatch: pytest.MonkeyPatch, ci: str
    ) -> None:
        monkeypatch.setenv("CI", ci)
        noisy.git.script(step_ms=10.4)

        result = noisy.run()

        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                self.ASKED.format(f"{noisy.base}, where its baseline was recorded"),
                "SLOWER: 10.40 ms per step, was 10.00 ms (+4.0 %)",
            ]
        )

    def test_what_the_code_did_not_move_passes_without_a_word_of_refreshing(
        self, noisy: RefProject
    ) -> None:
        result = noisy.run()

        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(
            [
                self.ASKED.format(f"{noisy.base}, where its baseline was recorded"),
                "gpuperf: 1 passed on scripted",
            ]
        )
        assert "refresh it here" not in words(result)

    def test_nobody_is_asked_about_what_a_count_has_blamed(
        self, noisy: RefProject
    ) -> None:
        noisy.git.script(step_ms=10.4, syncs=1)

        result = noisy.run()

        result.assert_outcomes(failed=1)
        result.stdout.no_fnmatch_line("*A/B against*")

    def test_none_asks_nobody(self, noisy: RefProject) -> None:
        result = noisy.run("--gpuperf-ref=none")

        result.assert_outcomes(passed=1, warnings=1)
        result.stdout.no_fnmatch_line("*A/B*")

    @pytest.mark.parametrize(
        ("ci", "outcomes"),
        [
            pytest.param("", {"passed": 1, "warnings": 1}, id="locally"),
            pytest.param("1", {"failed": 1}, id="in CI"),
        ],
    )
    def test_in_ci_other_code_decides_also_what_all_runs_left_open(
        self,
        project: RefProject,
        monkeypatch: pytest.MonkeyPatch,
        ci: str,
        outcomes: dict[str, int],
    ) -> None:
        monkeypatch.setenv("CI", ci)
        commit = project.git.git("rev-parse", "HEAD")
        # Steady, and too few to blame anybody.
        project.store(**{TEST: entry(*[10.0] * 4, origin=Origin(commit=commit))})
        project.commit_again()
        project.git.script(step_ms=10.4)

        result = project.run()

        result.assert_outcomes(**outcomes)

    def test_a_project_without_git_is_judged_by_its_baseline(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CI", "1")
        stored = {TEST: entry(*NOISY)}
        save(pytester.path / "baselines" / "scripted.json", SCRIPTED, **stored)
        pytester.makepyfile(test_it=STEP)
        script = pytester.path / "script.json"
        script.write_text('{"*": {"step_ms": 10.4}}', encoding="utf-8")
        monkeypatch.setenv("GPUPERF_SCRIPT", str(script))

        result = pytester.runpytest_inprocess(*ON)

        result.assert_outcomes(passed=1, warnings=1)
        result.stdout.no_fnmatch_line("*A/B*")

    def test_a_baseline_whose_commit_is_not_here_says_so(
        self, project: RefProject
    ) -> None:
        project.store(**{TEST: entry(*NOISY, origin=Origin(commit="f" * 40))})

        result = project.run()

        result.assert_outcomes(passed=1, warnings=1)
        assert (
            "not decided by A/B: its baseline was recorded at fffffff, which is not here"
        ) in words(result)


class TestRecorded:
    """``--gpuperf-ref=baseline``."""

    def test_a_refresh_records_the_commit(self, project: RefProject) -> None:
        commit = project.git.git("rev-parse", "HEAD")
        file = project.git.path / "baselines/scripted.json"
        file.unlink()

        project.run("--gpuperf-update=missing")
        clean = file.read_text(encoding="utf-8")
        file.unlink()
        project.git.write("new.py", "")
        project.run("--gpuperf-update=missing")
        dirty = file.read_text(encoding="utf-8")

        assert f'      "commit": "{commit}",\n' in clean
        assert '"dirty"' not in clean
        assert f'      "commit": "{commit}",\n      "dirty": true,\n' in dirty

    def test_the_recorded_commit_settles(self, project: RefProject) -> None:
        commit = project.git.git("rev-parse", "HEAD")
        project.store(**{TEST: entry(9.0, *[9.1] * 7, origin=Origin(commit=commit))})
        project.git.commit()
        project.git.write("README", "more\n")

        result = project.run("--gpuperf-ref=baseline")

        result.assert_outcomes(passed=1)
        assert (
            f"step_ms: A/B against {project.base}, where its baseline was recorded, "
            f"{ENGINE}: {SAME}; the machine changed since the baseline was recorded, not "
            "the code: refresh it here"
        ) in words(result)

    def test_so_does_the_commit_that_stored_it(self, project: RefProject) -> None:
        commit = project.git.git("rev-parse", "HEAD")
        project.git.script(step_ms=12.0)
        origin = Origin(commit=commit, dirty=True)
        project.store(**{TEST: entry(*[11.0] * 8, origin=origin)})
        stored = project.git.commit()
        project.git.script(step_ms=13.0)

        result = project.run("--gpuperf-ref=baseline")

        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "SLOWER: 13.00 ms per step, was 12.00 ms (+8.3 %)",
                f"  again    gpuperf ab {stored} -- --gpuperf-device=scripted {TEST}",
            ]
        )
        assert (
            f"A/B against {stored}, which stored its baseline, recorded from uncommitted "
            f"changes on top of {project.base}, {ENGINE}: after is slower"
        ) in words(result)

    def test_a_baseline_that_is_in_no_commit_settles_nothing(
        self, project: RefProject
    ) -> None:
        project.store(**{TEST: entry(*[9.0] * 8)})

        result = project.run("--gpuperf-ref=baseline")

        result.assert_outcomes(failed=1)
        assert (
            "not decided by A/B: its baseline names no commit, and is in none: commit it "
            "with the code it is of, or name a commit: --gpuperf-ref=REF"
        ) in words(result)


class TestUsage:
    def refused(self, result: pytest.RunResult) -> str:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stdout.no_fnmatch_line("*collected*")
        return result.stderr.str().strip()

    def test_an_unknown_commit(self, project: RefProject) -> None:
        error = self.refused(project.run("--gpuperf-ref=nope"))

        assert error == (
            "ERROR: --gpuperf-ref=nope: nope: git knows no such commit in "
            f"{project.git.path}; expected a branch, a tag or a commit [GP702]"
        )

    def test_a_name_that_is_an_option(self, project: RefProject) -> None:
        error = self.refused(project.run("--gpuperf-ref=--all"))

        assert error == (
            "ERROR: --gpuperf-ref: found '--all', expected a branch, a tag, a commit, "
            "`baseline`, `auto` or `none` [GP101]"
        )

    @pytest.mark.parametrize("ref", ["main", "baseline"])
    def test_outside_of_a_repository(
        self, pytester: pytest.Pytester, project_of_commits: GitProject, ref: str
    ) -> None:
        path = project_of_commits.path
        path.joinpath(".git").rename(path / "no git")

        error = self.refused(pytester.runpytest_inprocess(*ON, f"--gpuperf-ref={ref}"))

        assert error == (
            f"ERROR: --gpuperf-ref={ref}: {path}: git says 'not a git repository (or any "
            "of the parent directories): .git'; gpuperf ab compares two versions of a "
            "project, so run it where git has the project's files [GP701]"
        )

    def test_a_folder_outside_of_the_project(
        self, project: RefProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        root = f"--rootdir={project.git.path}"

        error = self.refused(
            project.run("--gpuperf-ref=main", root, str(project.git.path))
        )

        assert error == (
            f"ERROR: --gpuperf-ref=main: {tmp_path} is not in {project.git.path}; run "
            "pytest in the project [GP701]"
        )

    @pytest.mark.parametrize("other", ["--gpuperf-update=all", "--gpuperf-inline"])
    def test_where_nothing_is_gated(self, project: RefProject, other: str) -> None:
        error = self.refused(project.run("--gpuperf-ref=main", other))

        assert error == (
            f"ERROR: --gpuperf-ref and {other.partition('=')[0]} cannot be used together: "
            "leave one of them out [GP105]"
        )

    def test_the_ini_key_yields_to_a_refresh(self, project: RefProject) -> None:
        project.git.write("pytest.ini", "[pytest]\ngpuperf_ref = nope\n")

        refresh = project.run("--gpuperf-update=missing")
        gate = project.run()

        refresh.assert_outcomes(passed=1)
        assert gate.ret == pytest.ExitCode.USAGE_ERROR


class TestSides:
    def test_options_and_files_reach_both(self, project: RefProject) -> None:
        """The step is measured on both sides as this command line has it."""
        project.git.write(
            "conftest.py",
            "def pytest_addoption(parser): parser.addoption('--wide', default='no')\n",
        )
        project.git.write(
            "below/test_below.py",
            "def test_wide(gpuperf, request):\n"
            "    assert request.config.getoption('--wide') == 'yes'\n"
            "    gpuperf(int)\n",
        )
        project.git.commit()
        project.git.script(step_ms=11.0)

        result = project.run(
            "--gpuperf-ref=HEAD", "--wide=yes", "--gpuperf-tolerance=ms=20%", "below"
        )

        result.assert_outcomes(passed=1)
        assert (
            "a change of 22 % or more is ruled out: time +10.0 %, 95 % interval +9.5 % "
            "to +10.5 %; t-test over 3 pairs of processes; it has no baseline: record one"
        ) in words(result)

    def test_only_the_controller_of_workers_compares(
        self, project: RefProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project.git.script(step_ms=11.0)
        monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin,xdist.plugin")

        result = project.run("--gpuperf-ref=main", "-n2")

        result.assert_outcomes(failed=1)
        text = result.stdout.str()
        assert text.count("gpuperf: pair 1 of at most 8: 1 test") == 1
        assert f"A/B against main ({project.base}), {ENGINE}: after is" in words(result)
        assert project.git.is_untouched


class TestInterrupted:
    HANGS = """\
import time
def test_step(gpuperf):
    if "gpuperf-ab-" in __file__:
        fifo = open({fifo!r}, "w")
        fifo.write("!")
        fifo.flush()
        time.sleep(3600)
    gpuperf(int)
"""

    @pytest.mark.parametrize(
        ("number", "code"),
        [(signal.SIGINT, 2), (signal.SIGKILL, -signal.SIGKILL)],
    )
    def test_nothing_is_left_behind(
        self,
        project: RefProject,
        tmp_path: Path,
        temporary: Path,
        number: signal.Signals,
        code: int,
    ) -> None:
        with closing(Witness(tmp_path / "fifo")) as witness:
            project.git.tests(self.HANGS.format(fifo=witness.fifo))
            project.git.commit()
            project.git.script(step_ms=11.0)

            with subprocess.Popen(
                [sys.executable, "-m", "pytest", *ON, "--gpuperf-ref=HEAD"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - this process has no threads
            ) as process:
                assert witness.has_heard()
                process.send_signal(number)
                process.communicate(timeout=PATIENCE_SECONDS)

            assert process.returncode == code
            assert witness.all_ended()
            assert project.git.is_untouched
            assert [path.name for path in temporary.glob("gpuperf-ab-*")] == []


def hear_ctrl_c() -> None:
    """Undo what a shell does to a background job, where tests may well run."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
