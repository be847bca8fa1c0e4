"""Where a run stands in its repository, and what belongs to its project."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from builders import an_entry, baselines

from pytest_gpuperf.baselines.format import dumps
from pytest_gpuperf.plugin.outputs import RunPlace


def place(root: Path, **environ: Path) -> RunPlace:
    texts = {name: str(path) for name, path in environ.items()}
    return RunPlace(root=root, artefacts=root / ".gpuperf", environ=texts)


@pytest.mark.parametrize("name", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR"])
def test_files_are_named_from_the_repository_on(name: str, tmp_path: Path) -> None:
    root = tmp_path / "packages" / "one"

    assert place(root, **{name: tmp_path}).folder == "packages/one/"
    assert place(root, **{name: root}).folder == ""
    assert place(root, **{name: tmp_path / "elsewhere"}).folder == ""
    assert place(root).folder == ""


def test_a_repository_behind_a_link_is_the_same(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "one").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(real)

    assert place(real / "one", GITHUB_WORKSPACE=link).folder == "one/"


def test_only_files_below_the_rootdir_are_the_projects(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    found = place(tmp_path)

    assert found.is_ours("train.py")
    assert not found.is_ours("torch/nn/modules/linear.py")
    assert not found.is_ours(str(tmp_path / "train.py"))


# Which commit of a line is linked.


@pytest.fixture
def merged(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A clone with the merge of a pull request checked out, and its commits by name.

    The pull request added ``new.py`` and two syncs to the baseline in ``stored.json``;
    ``train.py`` changed on the other branch.
    """
    root = tmp_path / "clone"
    root.mkdir()

    def git(*arguments: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        command = ["git", "-C", str(root), *author, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(name: str, text: str) -> str:
        (root / name).write_text(text, "utf-8")
        git("add", name)
        git("commit", "--quiet", "--message=more")
        return git("rev-parse", "HEAD")

    git("init", "--quiet", "--initial-branch=main")
    commit("train.py", "one\n")
    commit("stored.json", dumps(baselines(t=an_entry(exact={"syncs": 0}))))
    git("checkout", "--quiet", "-b", "change")
    commit("stored.json", dumps(baselines(t=an_entry(exact={"syncs": 2}))))
    own = commit("new.py", "two\n")
    git("checkout", "--quiet", "main")
    commit("train.py", "zero\none\n")
    git("merge", "--quiet", "--no-ff", "--message=merge", "change")
    return root, {"own": own, "merge": git("rev-parse", "HEAD")}


def on_github(root: Path, event: object) -> RunPlace:
    path = root.parent / "event.json"
    path.write_text(json.dumps(event), "utf-8")
    environ = {
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(path),
    }
    return RunPlace(root=root, artefacts=root, environ=environ)


def test_what_a_pull_request_changes_in_a_baseline_is_known_of_its_merge(
    merged: tuple[Path, dict[str, str]],
) -> None:
    root, commits = merged
    asked = RunPlace(
        root=root, artefacts=root, environ={"GITHUB_EVENT_NAME": "pull_request"}
    )

    (change,) = asked.merged_changes("stored.json")

    assert (change.test, change.metric, change.old, change.new) == ("t", "syncs", 0, 2)
    assert asked.merged_changes("none.json") == asked.merged_changes("train.py") == ()
    assert replace(asked, environ={}).merged_changes("stored.json") == ()
    checkout = ["git", "-C", str(root), "checkout", "--quiet", commits["own"]]
    subprocess.run(checkout, check=True)
    assert asked.merged_changes("stored.json") == ()


def test_a_line_is_linked_in_the_commit_of_the_author_where_that_has_it(
    merged: tuple[Path, dict[str, str]],
) -> None:
    root, commits = merged
    event = {"pull_request": {"head": {"sha": commits["own"]}}}

    address = on_github(root, event).sources(commits["merge"]).address

    page = "https://github.com/o/r/blob"
    assert address("new.py", 1) == f"{page}/{commits['own']}/new.py#L1"
    assert address("train.py", 2) == f"{page}/{commits['merge']}/train.py#L2"


def test_a_clone_without_the_commit_of_the_author_links_what_was_measured(
    merged: tuple[Path, dict[str, str]],
) -> None:
    root, commits = merged
    event = {"pull_request": {"head": {"sha": "4f2a" * 10}}}

    address = on_github(root, event).sources(commits["merge"]).address

    assert f"/{commits['merge']}/" in address("new.py", 1)


@pytest.mark.parametrize(
    "event",
    [
        {},
        [],
        {"pull_request": None},
        {"pull_request": {"head": {"sha": "--output=x"}}},
        {"pull_request": {"head": {"sha": 7}}},
    ],
)
def test_an_event_that_names_no_commit_links_what_was_measured(
    event: object, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    address = on_github(tmp_path / "root", event).sources("4f2a").address

    assert address("a.py", 1) == "https://github.com/o/r/blob/4f2a/a.py#L1"


def test_a_merge_request_is_linked_in_the_commit_of_its_author(
    merged: tuple[Path, dict[str, str]],
) -> None:
    root, commits = merged
    environ = {
        "CI_PROJECT_URL": "https://gitlab.com/g/p",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": commits["own"],
    }
    here = RunPlace(root=root, artefacts=root, environ=environ)

    address = here.sources(commits["merge"]).address

    assert address("new.py", 1) == (
        f"https://gitlab.com/g/p/-/blob/{commits['own']}/new.py#L1"
    )


def test_a_run_outside_of_ci_has_no_pages(tmp_path: Path) -> None:
    assert place(tmp_path).sources("4f2a").address("a.py", 1) == ""


def test_a_file_next_to_the_rootdir_is_named_from_the_repository_on(
    tmp_path: Path,
) -> None:
    root = tmp_path / "repo" / "one"
    root.mkdir(parents=True)
    for file in (tmp_path / "repo/engine.py", tmp_path / "outside.py"):
        file.write_text("", encoding="utf-8")
    environ = {"GITHUB_WORKSPACE": str(tmp_path / "repo")}

    sources = RunPlace(root=root, artefacts=root, environ=environ).sources(None)

    assert sources.is_ours("../engine.py")
    assert sources.path("../engine.py") == "engine.py"
    assert not sources.is_ours("../../outside.py")
