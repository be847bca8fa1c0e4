"""``gpuperf ab``: two versions of a project, on the scripted device."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from git_project import SCRIPTED, GitProject
from process_fifo import PATIENCE_SECONDS, ProcessFifo, hear_ctrl_c

from pytest_gpuperf.cli import main
from pytest_gpuperf.compare_commits.side_server import Selection
from pytest_gpuperf.measure import plan
from pytest_gpuperf.sharing.device_lock import DeviceLock, lock_folder


FINE = "def test_fine(gpuperf): gpuperf(int)\n"

NO_MODULE = "ModuleNotFoundError: No module named 'no'"
UNKNOWN = "pytest.main(): error: unrecognized arguments"


PROGRESS = "".join(
    f"gpuperf: {said}\n"
    for said in (
        *(f"pair {number} of at most 8: 1 test" for number in range(1, 6)),
        "compared in 5 pairs",
    )
)


@pytest.fixture
def project(project_of_commits: GitProject) -> GitProject:
    return project_of_commits


def ab(*arguments: str) -> int:
    return main(["ab", SCRIPTED, *arguments])


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of two sides that cannot be compared."""
    assert ab(*arguments) == 125
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("counts_alone", "code", "said"),
    [
        (
            False,
            125,
            "and did not come free in time: wait for it, or measure on another",
        ),
        (True, 0, "gpuperf: 1 same"),
    ],
)
def test_what_only_counts_waits_for_nobody_who_times(
    project: GitProject,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    counts_alone: bool,
    code: int,
    said: str,
) -> None:
    project.scripts({"*": {"step_ms": 10.0}, "slots": ["gpu-ab"]})
    counting = partial(Selection, exact_alone=counts_alone)
    monkeypatch.setattr("pytest_gpuperf.cli.ab.Selection", counting)
    monkeypatch.setattr("pytest_gpuperf.sharing.device_lock.TURN_SECONDS", 0.1)

    with closing(DeviceLock(lock_folder(), "gpu-ab")) as lock:
        assert lock.try_exclusive()
        assert ab("HEAD") == code

    assert said in "".join(capsys.readouterr())


class TestVerdicts:
    def test_a_slower_working_tree_with_a_sync_fails(
        self,
        project: GitProject,
        capsys: pytest.CaptureFixture[str],
        temporary: Path,
    ) -> None:
        base = project.git("rev-parse", "--short=7", "HEAD")
        project.git("checkout", "--quiet", "-b", "feature")
        head = project.commit()
        project.script(step_ms=11.0, syncs=1)

        code = ab()

        assert code == 1
        shown = capsys.readouterr()
        assert shown.err == PROGRESS
        out = " ".join(shown.out.split())
        assert out.startswith(
            f"before merge base with main ({base}), after working tree ({head}, "
            "uncommitted changes), on scripted engine: pairs of fresh processes in "
        )
        for said in (
            "slower step_ms 10.00 ms 11.00 ms +10.0 % +9.7 to +10.3 1.7 % test_it.py::test_step",
            "worse syncs 0 1 +1 - - test_it.py::test_step",
            "interval +9.7 % to +10.3 %; t-test over 5 pairs of processes",
            "--> train.py:12 in step: new: aten::_local_scalar_dense, 1 per step",
        ):
            assert said in out
        assert out.endswith("gpuperf: 1 worse")
        assert project.is_untouched
        assert list(temporary.iterdir()) == []

    def test_two_commits_for_a_pull_request(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        project.tests("def test_step(gpuperf): gpuperf(int)\n" + FINE)
        project.script(step_ms=10.0, mem_mb=100)
        one = project.commit()
        project.scripts(
            {"*": {"step_ms": 10.0, "mem_mb": 100}, "test_fine": {"step_ms": 8.0}}
        )
        two = project.commit()
        project.script(step_ms=99.0)

        code = ab("--markdown", "HEAD~1", "main")

        assert code == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "**gpuperf: 1 better, 1 same**"
        assert f"before HEAD~1 ({one}), after main ({two}), on scripted" in lines
        rows = [line.split(" | ") for line in lines if line.startswith("| ")]
        assert [(row[0], row[1], row[4], row[-1]) for row in rows[2:]] == [
            ("| faster", "step_ms", "-20.0 %", "`test_it.py::test_fine` |"),
            ("| same", "step_ms", "+0.0 %", "`test_it.py::test_step` |"),
        ]

    def test_the_same_commit_twice_is_said(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = ab("main", "main")

        assert code == 0
        assert capsys.readouterr().out.splitlines()[-2:] == [
            "note: both are the same commit: what differs here is noise",
            "gpuperf: 1 same",
        ]

    def test_a_tolerance_of_the_test_and_of_the_command_line_count(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        project.tests(
            "import pytest_gpuperf as gpuperf\n"
            "@gpuperf.tolerance(ms='20%')\n"
            "def test_wide(gpuperf): gpuperf(int)\n" + FINE
        )
        project.commit()
        project.script(step_ms=11.5)

        wide = ("--gpuperf-tolerance=ms=20%", "test_it.py::test_fine")
        codes = [ab("HEAD"), ab("HEAD", "--", *wide)]

        assert codes == [1, 0]
        last = [
            line
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("gpuperf: ")
        ]
        assert last == ["gpuperf: 1 worse, 1 same", "gpuperf: 1 same"]


class TestOwnCode:
    """What pkg.VALUE is shows in the node ids."""

    TESTS = (
        "import pkg, pytest\n"
        "@pytest.mark.parametrize('value', [pkg.VALUE])\n"
        "def test_step(gpuperf, value): gpuperf(int)\n" + FINE
    )

    def test_an_installed_copy_is_refused(
        self,
        project: GitProject,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (tmp_path / "installed/pkg").mkdir(parents=True)
        (tmp_path / "installed/pkg/__init__.py").write_text("VALUE = 'copy'\n")
        monkeypatch.syspath_prepend(str(tmp_path / "installed"))
        project.write("src/pkg/__init__.py", "VALUE = 'own'\n")
        project.tests(self.TESTS)
        base = project.commit()

        error = refused(capsys, "HEAD")

        assert error.startswith(
            f"gpuperf: HEAD ({base}): cannot collect its tests: pkg was imported from "
            f"{tmp_path}/installed/pkg/__init__.py, which is not the code of this side; "
            "expected it below "
        )
        assert error.endswith(
            "/before: install the project editable (`pip install -e .`) or name its "
            "folder in pytest's `pythonpath` [GP708]\n"
        )


class TestBrokenSides:
    @pytest.mark.parametrize(
        ("name", "text", "argument", "said"),
        [
            ("conftest.py", "import no", ".", NO_MODULE),
            ("test_it.py", "import no", ".", f"test_it.py: {NO_MODULE}"),
            ("test_it.py", "def f(:", ".", "test_it.py: SyntaxError: invalid syntax"),
            ("test_it.py", FINE, "--what", f"{UNKNOWN}: --what"),
            ("test_it.py", FINE, "none", "ERROR: file or directory not found: none"),
        ],
    )
    def test_whatever_keeps_pytest_from_collecting_is_one_sentence(
        self,
        project: GitProject,
        capsys: pytest.CaptureFixture[str],
        name: str,
        text: str,
        argument: str,
        said: str,
    ) -> None:
        project.write(name, text)
        base = project.commit()

        assert refused(capsys, "HEAD", "--", argument) == (
            f"gpuperf: HEAD ({base}): cannot collect its tests: {said} [GP708]\n"
        )
        assert project.is_untouched

    @pytest.mark.parametrize(
        ("test", "path"),
        [
            ("from pkg import _fast\n", "pkg/_fast.so"),
            ("import pkg._fast\n", f"pkg/_fast{EXTENSION_SUFFIXES[0]}"),
            ("import ctypes; ctypes.CDLL('./lib.so')\n", "lib.so"),
        ],
    )
    def test_a_compiled_file_that_git_does_not_track_is_named(
        self,
        project: GitProject,
        capsys: pytest.CaptureFixture[str],
        test: str,
        path: str,
    ) -> None:
        project.write("pytest.ini", "[pytest]\npythonpath = .\n")
        project.write("pkg/__init__.py", "")
        project.write(".gitignore", "pkg/*.so\n")
        project.tests(test)
        base = project.commit()
        project.write("pkg/_other.so", "")
        project.write(path, "")

        error = refused(capsys, "HEAD")

        assert error.startswith(f"gpuperf: HEAD ({base}): cannot collect its tests: ")
        assert error.endswith(
            f"; the working tree has {path}, which git does not track, so no other "
            "version has it: build it on import, as torch.utils.cpp_extension.load does, "
            "or install it as a separate package [GP708]\n"
        )

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (
                "raise ValueError('no')",
                "test_it.py::test_step: failed after: ValueError: no",
            ),
            (
                "__import__('os').kill(__import__('os').getpid(), 9)",
                """\
test_it.py::test_step: could not be measured after: the measuring process was killed by \
signal 9: it printed nothing [GP602]""",
            ),
        ],
    )
    def test_what_breaks_after_fails_and_the_others_are_compared(
        self,
        project: GitProject,
        capsys: pytest.CaptureFixture[str],
        body: str,
        why: str,
    ) -> None:
        project.tests("def test_step(gpuperf): gpuperf(int)\n" + FINE)
        project.commit()
        project.tests(f"def test_step(gpuperf): {body}\n" + FINE)

        code = ab("HEAD")

        assert code == 1
        table, reason = capsys.readouterr().out.split("test_it.py::test_step\n")
        assert table.splitlines()[-1].split() == ["broken", *"------"]
        fine, *said = reason.splitlines()
        assert fine.split()[0] == "same"
        assert fine.endswith("test_it.py::test_fine")
        assert " ".join(" ".join(said).split()) == (
            f"{why} gpuperf: 1 broken after, 1 same"
        )

    def test_a_side_that_hangs_is_given_up(
        self,
        project: GitProject,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(plan, "PREPARING_SECONDS", 0.0)
        project.tests("import os\ndef test_step(gpuperf): os.read(os.pipe()[0], 1)\n")

        code = ab("HEAD", "--", "--gpuperf-seconds=1")

        assert code == 1
        text = " ".join(capsys.readouterr().out.split())
        assert (
            "test_step: could not be measured after: the measuring process gave" in text
        )
        assert "It had 6 s of its own time by --gpuperf-seconds=1, raise that" in text
        assert text.endswith("it printed nothing [GP601] gpuperf: 1 broken after")
        assert project.is_untouched

    def test_a_side_whose_server_dies_ends_with_the_reason(
        self, project: GitProject, capsys: pytest.CaptureFixture[str], temporary: Path
    ) -> None:
        project.tests("import os\ndef test_step(gpuperf): os.kill(os.getppid(), 9)\n")

        code = ab("HEAD")

        assert code == 1
        reason, _, last = capsys.readouterr().out.splitlines()[-3:]
        assert reason == (
            "test_it.py::test_step: could not be measured after: the measuring server died"
        )
        assert last == "gpuperf: 1 broken after"
        assert project.is_untouched
        assert list(temporary.iterdir()) == []


class TestEndings:
    HANGS = (
        "import os\n"
        "def test_step(gpuperf):\n"
        "    os.write(os.open({fifo!r}, os.O_WRONLY), b'!')\n"
        "    os.read(os.pipe()[0], 1)\n"
    )

    @pytest.fixture
    def process_fifo(self, tmp_path: Path) -> Iterator[ProcessFifo]:
        with closing(ProcessFifo(tmp_path / "fifo")) as process_fifo:
            yield process_fifo

    @pytest.mark.parametrize(
        ("number", "code"),
        [
            (signal.SIGINT, 130),
            (signal.SIGKILL, -signal.SIGKILL),
        ],
    )
    def test_nothing_is_left_behind(
        self,
        project: GitProject,
        process_fifo: ProcessFifo,
        temporary: Path,
        number: signal.Signals,
        code: int,
    ) -> None:
        """Its standard error is open for as long as the process that tidies lives."""
        project.tests(self.HANGS.format(fifo=process_fifo.fifo))
        project.commit()

        with subprocess.Popen(
            [sys.executable, "-m", "pytest_gpuperf", "ab", SCRIPTED, "HEAD"],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - this process has no threads
        ) as process:
            assert process_fifo.has_heard()
            process.send_signal(number)
            _, error = process.communicate(timeout=PATIENCE_SECONDS)

        assert process.returncode == code
        assert process_fifo.all_ended()
        assert project.is_untouched
        assert [path.name for path in temporary.glob("gpuperf-ab-*")] == []
        said = "interrupted: nothing was judged, no file is left" in error
        assert said == (number is signal.SIGINT)


class TestGit:
    def test_outside_of_a_repository(
        self,
        project: GitProject,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)

        assert refused(capsys, "HEAD") == (
            f"gpuperf: {tmp_path}: git says 'not a git repository (or any of the parent "
            "directories): .git'; gpuperf ab compares two versions of a project, so run "
            "it where git has the project's files [GP701]\n"
        )

    def test_without_git(
        self,
        project: GitProject,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("PATH", str(project.path))

        assert refused(capsys, "HEAD") == (
            "gpuperf: found no git: gpuperf ab takes the versions of a project from it [GP704]\n"
        )

    def test_an_unknown_ref(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert refused(capsys, "nowhere") == (
            f"gpuperf: nowhere: git knows no such commit in {project.path}; expected a "
            "branch, a tag or a commit [GP702]\n"
        )

    def test_no_branch_to_compare_with(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        project.git("branch", "--move", "trunk")

        assert refused(capsys) == (
            "gpuperf: found none of main, master and origin/HEAD to compare with; name a "
            "commit: `gpuperf ab REF` [GP703]\n"
        )

    def test_no_commit_in_common(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        project.git("checkout", "--quiet", "--orphan", "other")
        project.commit()

        assert refused(capsys) == (
            "gpuperf: HEAD and main have no commit in common here; name a commit: "
            "`gpuperf ab REF` [GP703]\n"
        )

    def test_an_argument_of_pytest_before_the_dashes(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert refused(capsys, "HEAD", "-x") == (
            "gpuperf: unexpected -x: arguments of pytest go after `--`; see `gpuperf ab "
            "--help` [GP102]\n"
        )

    def test_the_base_is_where_head_left_master_if_there_is_no_main(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        base = project.git("rev-parse", "--short=7", "HEAD")
        project.git("branch", "--move", "master")
        project.git("checkout", "--quiet", "-b", "feature")
        project.git("checkout", "--quiet", "master")
        project.script(step_ms=5.0)
        project.commit()
        project.git("checkout", "--quiet", "feature")

        code = ab()

        assert code == 0
        assert capsys.readouterr().out.splitlines()[:2] == [
            f"before merge base with master ({base}), after working tree ({base}), on",
            "    scripted",
        ]

    DEEPEN = (
        "fetch the rest with `git fetch --unshallow`, or some with `git fetch "
        "--deepen=100`"
    )

    def test_a_shallow_clone_says_how_to_deepen_it(
        self,
        project: GitProject,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        old = project.git("rev-parse", "HEAD")
        project.git("checkout", "--quiet", "-b", "feature")
        project.commit()
        project.git("checkout", "--quiet", "main")
        project.commit()
        origin = f"file://{project.path}"
        options = ("--quiet", "--depth=1", "--no-single-branch")
        project.git("clone", *options, origin, str(tmp_path / "clone"))
        monkeypatch.chdir(tmp_path / "clone")
        project.path = tmp_path / "clone"
        project.git("checkout", "--quiet", "feature")

        codes = [ab(), ab(old)]

        assert codes == [125, 125]
        assert capsys.readouterr().err == (
            "gpuperf: HEAD and main have no commit in common here; name a commit: "
            "`gpuperf ab REF`; this clone is shallow and the common one may not be here: "
            f"{self.DEEPEN} [GP703]\n"
            f"gpuperf: {old}: git knows no such commit in {project.path}; expected a "
            "branch, a tag or a commit; this clone is shallow and it may be one that is "
            f"not here: {self.DEEPEN} [GP702]\n"
        )

    def test_a_folder_that_only_one_version_has(
        self,
        project: GitProject,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        base = project.git("rev-parse", "--short=7", "HEAD")
        project.write("new/keep", "")
        monkeypatch.chdir(project.path / "new")

        assert refused(capsys, "HEAD") == (
            f"gpuperf: HEAD ({base}): has no folder new; run gpuperf ab in a folder that "
            "both versions have [GP707]\n"
        )
        assert project.is_untouched

    def test_no_test_that_takes_the_fixture(
        self, project: GitProject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        project.tests("def test_plain(): pass\n")
        project.commit()

        assert refused(capsys, "HEAD") == (
            "gpuperf: nothing to compare: found no test that takes the gpuperf fixture on "
            "either side; name the files of those that do after `--` [GP709]\n"
        )

    def test_a_hook_of_git_may_run_it_and_none_is_run_by_it(
        self, project: GitProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The process that checks out must not read the index of a hook."""
        hook = project.path / ".git/hooks/post-checkout"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        hook.chmod(0o755)
        monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
        monkeypatch.setenv("GIT_DIR", ".git")

        code = ab("HEAD")

        assert code == 0
        assert not (tmp_path / "ran").exists()
        assert not (tmp_path / "index").exists()


class TestSubmodules:
    """The library of a submodule says what a node id is called."""

    @pytest.fixture
    def library(self, project: GitProject, tmp_path: Path) -> GitProject:
        """A submodule ``lib`` with two commits; the project is at the first."""
        origin = GitProject(tmp_path / "library")
        origin.write("named.py", "NAME = 'one'\n")
        origin.commit()
        allowed = ("-c", "protocol.file.allow=always")
        project.git(*allowed, "submodule", "--quiet", "add", str(origin.path), "lib")
        project.write(
            "pytest.ini", "[pytest]\npythonpath = lib\ntestpaths = test_it.py\n"
        )
        project.tests(
            "import pytest\nfrom named import NAME\n"
            "@pytest.mark.parametrize('name', [NAME])\n"
            "def test_step(gpuperf, name): gpuperf(int)\n" + FINE
        )
        project.commit()
        return origin

    def test_each_side_has_the_commit_that_it_asks_for(
        self,
        project: GitProject,
        library: GitProject,
        capsys: pytest.CaptureFixture[str],
        temporary: Path,
    ) -> None:
        project.write("lib/named.py", "NAME = 'two'\n")
        head = project.git("rev-parse", "--short=7", "HEAD")

        code = ab("HEAD")

        assert code == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:2] == [
            f"before HEAD ({head}), after working tree ({head}, uncommitted changes), on",
            "    scripted",
        ]
        assert lines[-5:] == [
            "test_it.py::test_step[one]: before only",
            "test_it.py::test_step[two]: after only",
            "note: submodule lib is dirty: the working tree is measured as it is, with what",
            "    is changed in there",
            "gpuperf: 1 same, 2 not compared",
        ]
        assert project.is_untouched
        assert not (project.path / ".git/modules/lib/worktrees").exists()
        assert list(temporary.iterdir()) == []

    def test_a_commit_of_a_submodule_that_is_not_here(
        self,
        project: GitProject,
        library: GitProject,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        library.commit()
        missing = library.git("rev-parse", "HEAD")
        project.git("update-index", "--cacheinfo", f"160000,{missing},lib")
        project.git("commit", "--quiet", "--message=ahead")
        head = project.git("rev-parse", "--short=7", "HEAD")

        assert refused(capsys, "HEAD") == (
            f"gpuperf: submodule lib: its commit {missing[:7]}, which {head} asks for, is "
            "not here; fetch it with `git -C lib fetch` [GP706]\n"
        )

    def test_a_submodule_that_nobody_fetched(
        self,
        project: GitProject,
        library: GitProject,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        project.tests(FINE)
        head = project.commit()
        project.git("submodule", "--quiet", "deinit", "--all")

        code = ab("HEAD")

        assert code == 0
        assert capsys.readouterr().out.splitlines()[-2:] == [
            f"note: submodule lib is not initialised: HEAD ({head}) is measured without it",
            "gpuperf: 1 same",
        ]
