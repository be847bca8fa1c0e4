"""Which commit has the code that a baseline was recorded on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_finding, a_location, an_entry
from git_project import GitProject

from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.finding import Finding, FindingKind
from pytest_gpuperf.runner.evidence import RecordedCode
from pytest_gpuperf.runner.git import Repository, short


HARDWARE = Hardware(kind=DeviceKind.SCRIPTED, name="gpu")
FOLDER = "[a] b"
FILE = f"{FOLDER}/{HARDWARE.key}.json"


@pytest.fixture
def project(project_of_commits: GitProject) -> GitProject:
    return project_of_commits


def store(project: GitProject, **tests: int) -> str:
    """Commit a file that says so, and return the whole name of the commit."""
    project.write(FILE, json.dumps({"tests": tests}))
    project.commit()
    return project.git("rev-parse", "HEAD")


def recorded(project: GitProject, root: str = "") -> RecordedCode:
    path = project.path
    return RecordedCode(path / root, path / FOLDER, HARDWARE)


def commit_of(project: GitProject, test: str) -> str:
    return recorded(project).commit_of(test, an_entry(None))


def test_it_is_the_one_since_which_the_file_says_so(project: GitProject) -> None:
    project.write(FILE, "<<<<<<<")  # what was no baseline file is passed over
    project.commit()
    store(project, a=1)
    second = store(project, a=2, b=1)
    third = store(project, a=2, b=2)
    store(project, a=2, b=2, c=1)

    assert commit_of(project, "a") == second
    assert commit_of(project, "b") == third


def test_without_a_baseline_a_repository_or_a_commit_there_is_none(
    project: GitProject, tmp_path: Path
) -> None:
    store(project, a=1)
    elsewhere = RecordedCode(tmp_path, tmp_path / FOLDER, HARDWARE)

    assert recorded(project).commit_of("a", None) == ""
    assert elsewhere.commit_of("a", an_entry(None)) == ""
    assert not elsewhere.has_commits
    project.write(FILE, json.dumps({"tests": {"a": 2}}))
    assert commit_of(project, "a") == ""


def test_a_shallow_clone_does_not_know_what_stored_it(
    project: GitProject, tmp_path: Path
) -> None:
    store(project, a=1)
    project.commit()
    clone = tmp_path / "clone"
    project.git("clone", "--quiet", "--depth=1", project.path.as_uri(), str(clone))

    found = RecordedCode(clone, clone / FOLDER, HARDWARE).commit_of("a", an_entry(None))

    assert found == ""


# Which lines are not as they were at a commit.


def changed(project: GitProject, path: str) -> list[int]:
    repository = Repository.containing(project.path)
    return sorted(repository.changed_lines(project.git("rev-parse", "HEAD"), path))


def test_changed_and_added_lines_are_known_by_their_numbers_today(
    project: GitProject,
) -> None:
    """An untracked file may have been there, as it is, when the baseline was recorded."""
    lines = [f"line {number}\n" for number in range(20)]
    project.write("a b/[x].py", "one\ntwo\nthree\nfour\n")
    project.write("old.py", "".join(lines))
    project.commit()

    project.write("a b/[x].py", "zero\none\n2\nthree\nfive\nsix\n")
    project.write("added.py", "one\ntwo\n")
    project.write("untracked.py", "one\n")
    project.git("mv", "old.py", "moved.py")
    project.write("moved.py", "".join([*lines[:9], "another\n", *lines[10:]]))
    project.git("add", "added.py", "moved.py")

    assert changed(project, "a b/[x].py") == [1, 3, 5, 6]
    assert {1, 2} <= set(changed(project, "added.py"))
    assert changed(project, "moved.py") == [10]
    assert changed(project, "untracked.py") == changed(project, "test_it.py") == []


def test_a_slow_line_says_since_which_commit_it_is_another(project: GitProject) -> None:
    project.write("pkg/train.py", "one\ntwo\n")
    commit = short(store(project, t=1))
    project.write("pkg/train.py", "one\n2\n")
    entry = an_entry(None)
    code = recorded(project, "pkg")
    slow = [slow_line(number) for number in (1, 2)]

    found = code.with_changes(slow, "t", entry)

    assert [f.changed_since for f in found] == ["", commit]
    assert code.with_changes(slow, "t", None) == tuple(slow)


def slow_line(number: int) -> Finding:
    return a_finding(
        FindingKind.TIME,
        op=None,
        percent=40.0,
        location=a_location(number, "train.py", "step"),
    )


def test_a_changed_line_with_little_memory_explains_no_peak(
    project: GitProject,
) -> None:
    store(project, t=1)
    project.write("pkg/train.py", "one\n2\n3\n")
    project.git("add", "pkg")
    entry = an_entry(None)
    code = recorded(project, "pkg")
    held = [
        replace(slow_line(line), kind=FindingKind.MEMORY, held_bytes=held_bytes)
        for line, held_bytes in ((1, 1000), (2, 49), (3, 51))
    ]

    found = code.with_changes(held, "t", entry)

    assert [bool(f.changed_since) for f in found] == [True, False, True]
