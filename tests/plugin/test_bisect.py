"""``gpuperf bisect``: the commit that made a test worse, on the scripted device."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_project import SCRIPTED
from git_project import GitProject

from pytest_gpuperf.cli import main


TEST = "test_it.py::test_step"
BROKEN = "import nowhere\n"
FINE = "def test_step(gpuperf): gpuperf(int)\n"


@pytest.fixture
def project(project_of_commits: GitProject) -> GitProject:
    return project_of_commits


def bisect(*arguments: str) -> int:
    return main(["bisect", SCRIPTED, *arguments])


def history(project: GitProject, *step_ms: float | None) -> list[str]:
    """Commit a version for each time; ``None`` is one that cannot be imported."""
    commits = []
    for ms in step_ms:
        project.tests(BROKEN if ms is None else FINE)
        if ms is not None:
            project.script(step_ms=ms)
        commits.append(project.commit())
    return commits


def test_the_first_bad_commit_is_named_with_its_table(
    project: GitProject, capsys: pytest.CaptureFixture[str], temporary: Path
) -> None:
    good, _, _, slow, bad = history(project, 10.0, 10.0, 10.0, 11.0, 11.0)
    day = project.git("log", "-1", "--format=%as", slow)

    code = bisect(good, bad, TEST)

    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"before {good}, after {slow}, on scripted"
    assert lines[5].split()[:2] == ["slower", "step_ms"]
    assert lines[-1] == f"gpuperf: the first bad commit is {slow} 5 (a, {day})"
    assert project.is_untouched
    assert not (project.path / ".git/BISECT_LOG").exists()
    assert list(temporary.iterdir()) == []


def test_a_commit_next_to_the_good_one_is_found_at_once(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = history(project, 10.0, 11.0)

    code = bisect(good, bad, TEST)

    assert code == 0
    assert f"the first bad commit is {bad} 3" in capsys.readouterr().out


def test_commits_that_cannot_be_imported_are_skipped(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    good, _, broken, _, slow, bad = history(project, 10.0, 10.0, None, 10.0, 11.0, 11.0)

    code = bisect(good, bad, TEST)

    assert code == 0
    shown = capsys.readouterr()
    assert f"gpuperf: skip {broken} 4" in shown.err
    assert f"the first bad commit is {slow} 6" in shown.out


def test_where_skipped_commits_leave_several_all_are_named(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    good, broken, bad = history(project, 10.0, None, 11.0)

    code = bisect(good, bad, TEST)

    assert code == 1
    shown = capsys.readouterr()
    assert f"gpuperf: skip {broken} 3" in shown.err
    *listed, first, last = shown.out.splitlines()
    assert {line.split()[0] for line in listed} == {broken, bad}
    assert f"{first} {last.strip()}" == (
        "gpuperf: the first bad commit is one of these 2; those between could not be "
        "judged"
    )
    assert project.is_untouched


def test_what_is_not_worse_has_no_first_bad_commit(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = history(project, 10.0, 10.0)

    code = bisect(good, bad, TEST)

    assert code == 4
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "gpuperf: 1 same"
    assert shown.err.splitlines()[-1] == (
        f"gpuperf: {bad} is not worse than {good}: there is nothing to find [GP712]"
    )


def test_the_two_commits_in_the_wrong_order(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = history(project, 10.0, 11.0)

    code = bisect(bad, good, TEST)

    assert code == 4
    assert capsys.readouterr().err == (
        f"gpuperf: {bad} is not an ancestor of {good}: expected GOOD BAD, where BAD is a "
        "later commit on top of GOOD [GP711]\n"
    )


def test_a_bisection_of_the_user_s_own_goes_on(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    good, middle, bad = history(project, 10.0, 10.0, 11.0)
    project.git("bisect", "start", bad, good)
    before = project.git("bisect", "log")

    code = bisect(good, bad, TEST)

    assert code == 0
    assert f"the first bad commit is {bad} 4" in capsys.readouterr().out
    assert project.git("bisect", "log") == before
    assert project.git("rev-parse", "--short=7", "HEAD") == middle
