"""``gpuperf merge-baselines``: two branches' baselines as one, by git itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import H200
from builders import holding

import pytest_gpuperf
from pytest_gpuperf.baselines.format import dumps
from pytest_gpuperf.baselines.format import join
from pytest_gpuperf.baselines.format import loads
from pytest_gpuperf.cli import main
from pytest_gpuperf.model.baseline import Baselines
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Hardware


H100 = Hardware(kind=DeviceKind.CUDA, name="NVIDIA H100")
FILE = "baselines/cuda-nvidia-h200.json"


def joined(
    ancestor: Baselines, ours: Baselines, theirs: Baselines
) -> tuple[Baselines, tuple[str, ...]]:
    return join(ancestor.entries, ours, theirs.entries)


def test_each_side_brings_what_it_alone_changed_added_or_removed() -> None:
    ancestor = holding(a=1, b=1, gone=1, lost=1, same=1)
    ours = holding(a=2, b=1, lost=1, same=1, mine=7)
    theirs = holding(a=1, b=3, gone=1, same=1, other=8)

    assert joined(ancestor, ours, theirs) == (
        holding(a=2, b=3, mine=7, other=8, same=1),
        (),
    )


def test_what_both_changed_alike_is_no_conflict() -> None:
    both = holding(a=2, new=5)

    assert joined(holding(a=1, gone=1), both, both) == (both, ())


@pytest.mark.parametrize(
    ("ancestor", "ours", "theirs", "merged"),
    [
        (holding(a=1), holding(a=2), holding(a=3), holding(a=2)),
        (holding(), holding(a=2), holding(a=3), holding(a=2)),
        (holding(a=1), holding(), holding(a=3), holding()),
        (holding(a=1), holding(a=2), holding(), holding(a=2)),
    ],
    ids=["changed twice", "added twice", "removed here", "removed there"],
)
def test_of_what_both_changed_ours_is_kept_and_named(
    ancestor: Baselines, ours: Baselines, theirs: Baselines, merged: Baselines
) -> None:
    assert joined(ancestor, ours, theirs) == (merged, ("a",))


def write(name: str, baselines: Baselines) -> None:
    Path(name).write_text(dumps(baselines), "utf-8")


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_tmp_path")
def test_files_of_other_hardware_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, hardware in (("o", H200), ("a", H200), ("b", H100)):
        write(name, holding(hardware, a=1))

    assert main(["merge-baselines", "o", "a", "b", FILE]) == 4
    assert capsys.readouterr().err == (
        f"gpuperf: {FILE}: one branch measured on cuda-nvidia-h200, the other on "
        "cuda-nvidia-h100; keep one of them, or give each its own file [GP508]\n"
    )


@pytest.mark.usefixtures("in_tmp_path")
def test_a_side_that_cannot_be_read_leaves_ours_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("o", holding(a=1))
    write("a", holding(a=2))
    Path("b").write_text("{", "utf-8")

    assert main(["merge-baselines", "o", "a", "b"]) == 4
    assert capsys.readouterr().err.startswith("gpuperf: b: the file is cut off")
    assert loads(Path("a").read_text("utf-8"), "a") == holding(a=2)


@pytest.mark.usefixtures("in_tmp_path")
def test_an_ancestor_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("a", holding(a=2))
    write("b", holding(a=3))

    assert main(["merge-baselines", "o", "a", "b"]) == 4
    assert capsys.readouterr().err == (
        "gpuperf: o: cannot be read ([Errno 2] No such file or directory: 'o'); expected "
        "a baseline file [GP501]\n"
    )


class Repository:
    """A repository whose baselines are merged by the driver that is documented."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet", "--initial-branch=main")
        driver = f"{sys.executable} -m pytest_gpuperf merge-baselines %O %A %B %P"
        self.git("config", "merge.gpuperf.driver", driver)
        (path / "baselines").mkdir()
        (path / ".gitattributes").write_text("baselines/*.json merge=gpuperf\n")

    def git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        package = Path(pytest_gpuperf.__file__).parents[1]
        return subprocess.run(
            ["git", "-C", str(self.path), *author, *arguments],  # noqa: S607
            capture_output=True,
            check=False,
            text=True,
            env={
                **os.environ,
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_CONFIG_SYSTEM": os.devnull,
                "PYTHONPATH": str(package),
            },
        )

    def commit(self, baselines: Baselines) -> None:
        (self.path / FILE).write_text(dumps(baselines), "utf-8")
        self.git("add", "--all")
        assert self.git("commit", "--quiet", "--message=x").returncode == 0

    def diverge(self, ours: Baselines, theirs: Baselines) -> None:
        self.git("checkout", "--quiet", "-b", "theirs")
        self.commit(theirs)
        self.git("checkout", "--quiet", "main")
        self.commit(ours)

    @property
    def merged(self) -> Baselines:
        return loads((self.path / FILE).read_text("utf-8"), FILE)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.commit(holding(b=1, d=1))
    return made


def test_git_merges_additions_at_one_place(repository: Repository) -> None:
    repository.diverge(holding(b=1, c1=1, d=1), holding(b=1, c2=2, d=2))

    merge = repository.git("merge", "theirs")

    assert merge.returncode == 0, merge.stderr
    assert repository.merged == holding(b=1, c1=1, c2=2, d=2)


def test_git_leaves_a_conflict_that_can_be_read_and_measured(
    repository: Repository,
) -> None:
    repository.diverge(holding(b=2, d=1), holding(b=3, d=5))

    merge = repository.git("merge", "theirs")

    assert merge.returncode == 1
    assert merge.stderr.splitlines()[:4] == [
        f"gpuperf: {FILE}: both branches recorded a test anew,",
        "    and neither number is that of the merged code; the file has ours, measure",
        "    again with:",
        "    gpuperf refresh --accept-drift --device=cuda b",
    ]
    assert repository.merged == holding(b=2, d=5)
    assert repository.git("status", "--short").stdout == f"UU {FILE}\n"
