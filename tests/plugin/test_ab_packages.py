"""``gpuperf ab`` with other packages, with a patch, and against another folder."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from git_project import SCRIPTED, GitProject

from pytest_gpuperf import environments as overlay
from pytest_gpuperf.cli import main
from pytest_gpuperf.environments import installed
from pytest_gpuperf.errors import ErrorId, UsageError


FAST = "def norm(x): return x / x.norm()\n"
SLOW = "def norm(x): return x / x.norm().item()\n"

TESTS = """\
import torch
def test_step(gpuperf):
    import fastops
    x = torch.ones(8, 8, device=gpuperf.device)
    gpuperf(lambda: fastops.norm(x))
"""


class Shelf:
    """An installer that has one package in several versions."""

    CODE: ClassVar = {"fastops==1.0": FAST, "fastops==2.0": SLOW, "fastops==1.1": FAST}

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        here = f"fastops=={installed()['fastops']}"
        return tuple(each for each in requirements if each != here)

    def install(self, packages: Sequence[str], folder: Path) -> None:
        folder.mkdir()
        for package in packages:
            if package not in self.CODE:
                msg = "uv cannot install that: there is no such version"
                raise UsageError(msg, ErrorId.GP718)
            _installed(folder, package)


def _installed(folder: Path, package: str) -> None:
    name, _, version = package.partition("==")
    (folder / f"{name}.py").write_text(Shelf.CODE[package])
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (about / "RECORD").write_text(f"{name}.py,,\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in no repository, and the package that it uses."""
    pytest.importorskip("torch")
    place = tmp_path / "site-packages"
    place.mkdir()
    _installed(place, "fastops==1.0")
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.setattr(overlay, "installer", Shelf)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_it.py").write_text(TESTS)
    monkeypatch.chdir(project)
    return project


def ab(*arguments: str) -> int:
    return main(["ab", "--device=simulated", *arguments])


def test_a_wait_that_a_release_adds_is_named_with_its_line_in_the_package(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ab("--with", "fastops==2.0") == 1

    shown = capsys.readouterr()
    assert shown.err.startswith("gpuperf: installing fastops==2.0\n")
    head, *_ = shown.out.splitlines()
    assert head.startswith(
        "before this folder, after this folder with fastops 1.0 -> 2"
    )
    assert "worse    syncs        0      1      +1  test_it.py::" in shown.out
    assert "inside   fastops.py:1 in norm" in shown.out


def test_a_release_that_changes_nothing_is_the_same_and_leaves_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert ab("--with=fastops==1.1") == 0

    assert "gpuperf: 1 same\n" in capsys.readouterr().out
    assert [*(tmp_path / "scratch").iterdir()] == []


def test_what_a_lock_file_pinned_is_what_is_compared_with(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.txt").write_text("fastops==2.0\n")

    assert ab("--lock=old.txt") == 0

    out = capsys.readouterr().out
    assert out.startswith(
        "before this folder with fastops 1.0 -> 2.0, after this folder"
    )
    assert "better   syncs        1      0      -1" in out
    # What `gpuperf report` shows, which nobody has to ask for.
    assert ": 1 better</h1>" in Path(".gpuperf/ab.html").read_text("utf-8")


def test_one_run_writes_json_and_the_table_for_a_reviewer(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("--markdown-file=out/it.md", "--html=out/it.html")
    assert ab("--json", *files, "--with", "fastops==2.0") == 1

    found = json.loads(capsys.readouterr().out)
    (test,) = found["tests"]
    assert found["is_worse"] is True
    assert (test["verdict"], test["exact"][0]["metric"]) == ("worse", "syncs")
    finding = test["findings"][0]
    assert finding["location"]["file"] == "test_it.py"
    assert finding["innermost"]["line"] == 1
    assert (finding["per_step"], finding["before_per_step"]) == (1, 0)
    assert Path("out/it.md").read_text("utf-8").startswith("**gpuperf: 1 worse**")
    assert ": 1 worse</h1>" in Path("out/it.html").read_text("utf-8")


def test_a_project_that_breaks_without_a_package_is_broken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ab("--without=fastops") == 1

    out = " ".join(capsys.readouterr().out.split())
    assert "after this folder with fastops 1.0 -> none" in out
    assert "broken" in out
    assert "No module named 'fastops'" in out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--with=fastops==9"], "uv cannot install that: there is no such version"),
        (["--with=fastops==1.0"], "what is named is what is installed"),
        (["--without=nothing"], "--without=nothing: no such package is installed"),
        (["--lock=none.txt"], "--lock=none.txt: cannot be read"),
        (["--patch=none.diff"], "--patch=none.diff: there is no such file"),
        (["--patch=-"], "git says 'not a git repository"),
        (["HEAD", "--with=fastops==2.0"], "HEAD: .* expected no REF"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence_and_leaves_nothing(
    here: Path,
    typed: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert ab(*typed) == 125

    shown = capsys.readouterr()
    last = shown.err.splitlines()[-1]
    assert last.startswith("gpuperf: ")
    assert re.search(said, last)
    assert not [*(tmp_path / "scratch").rglob("fastops.py")]


def test_another_folder_is_compared_with_this_one(
    here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    slow = TESTS.replace("fastops.norm(x)", "fastops.norm(x).sum().item()")
    (other / "test_it.py").write_text(slow)

    assert ab("../other") == 0

    out = capsys.readouterr().out
    assert out.startswith("before ../other, after this folder")
    assert re.search(r"better   syncs +1 +0 ", out)


PATCH = """\
--- a/script.json
+++ b/script.json
@@ -1 +1 @@
-{"*": {"step_ms": 10.0}}
\\ No newline at end of file
+{"*": {"step_ms": 10.0, "syncs": 1}}
"""


@pytest.mark.parametrize("given", ["a.diff", "-"])
def test_a_patch_is_judged_on_top_of_the_files_as_they_are(
    project_of_commits: GitProject,
    given: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    project = project_of_commits
    project.tests("def test_new(gpuperf): gpuperf(int)\n")  # in no commit
    head = project.git("rev-parse", "--short=7", "HEAD")
    (tmp_path / "a.diff").write_text(PATCH)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PATCH.encode())))
    patch = given if given == "-" else str(tmp_path / "a.diff")
    status = project.git("status", "--porcelain")

    assert main(["ab", SCRIPTED, f"--patch={patch}"]) == 1

    out = " ".join(capsys.readouterr().out.split())
    assert f"before {head}, after {head} with " in out
    assert "worse syncs 0 1 +1 - - test_it.py::test_new" in out
    assert project.is_untouched
    assert project.git("status", "--porcelain") == status


def test_a_patch_that_does_not_apply_says_so(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.diff").write_text(PATCH.replace("10.0", "12.0"))

    assert main(["ab", SCRIPTED, f"--patch={tmp_path / 'a.diff'}"]) == 125

    last = capsys.readouterr().err.splitlines()[-1]
    assert "git cannot apply the patch: script.json: patch does not apply" in last


PROGRAM = """\
import sys, torch, fastops
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(int(sys.argv[1])):
    fastops.norm(model(torch.ones(8, 8, device="cuda"))).sum().backward()
    optimizer.step()
"""


def test_a_script_is_run_on_both_sides(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text(PROGRAM)

    # A number that was read is no part of the graph, so its gradient is missing.
    assert main(["ab", "--with=fastops==2.0", "--", "train.py", "3"]) == 2

    out = capsys.readouterr().out
    assert (
        "train.py: training differs: gradient of weight in step 1: 34.8 % apart" in out
    )
    assert "worse    syncs        2      5      +3  train.py" in out
    assert "--> train.py:5 in <module>" in out
    assert "inside   fastops.py:1 in norm" in out


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (PROGRAM, "train.py ended with exit status 1: IndexError"),
        ("import os; os._exit(0)", "this folder: train.py ended with exit status 0 in"),
        ("print(1)", "train.py did nothing on the GPU: nothing was compared"),
        (None, "train.py"),
    ],
)
def test_a_script_that_cannot_be_compared_is_one_sentence(
    here: Path, program: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if program is not None:
        Path("train.py").write_text(program)

    assert main(["ab", "--with=fastops==2.0", "--", "train.py"]) == 125
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_an_interrupted_script_ends_the_command_as_ctrl_c_does(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("raise KeyboardInterrupt\n")

    assert main(["ab", "--with=fastops==2.0", "--", "train.py"]) == 130

    assert capsys.readouterr().err.endswith(
        "interrupted: nothing was judged, no file is left\n"
    )


def test_a_script_that_ends_by_sigterm_ends_the_command(here: Path) -> None:
    Path("train.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
    )

    with pytest.raises(SystemExit) as ended:
        main(["ab", "--with=fastops==2.0", "--", "train.py"])

    assert ended.value.code == 128 + signal.SIGTERM


def test_files_that_git_cannot_read_are_no_files_as_they_are(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.diff").write_text(PATCH)
    project_of_commits.write("inner/code.py", "")
    project_of_commits.git("init", "--quiet", "inner")

    assert main(["ab", SCRIPTED, f"--patch={tmp_path / 'a.diff'}"]) == 125

    last = capsys.readouterr().err.splitlines()[-1]
    assert "git cannot take the files as they are: " in last
