"""``git bisect run gpuperf ab``: git finds the commit that made a test worse."""

from __future__ import annotations

import shlex
import sys

import pytest
from git_project import SCRIPTED, GitProject


TEST = "test_it.py::test_step"
BROKEN = "import nowhere\n"
FINE = "def test_step(gpuperf): gpuperf(int)\n"


@pytest.fixture
def project(project_of_commits: GitProject) -> GitProject:
    return project_of_commits


def history(project: GitProject, *step_ms: float | None) -> list[str]:
    """Commit a version for each time; ``None`` is one that cannot be imported."""
    project.write(".gitignore", "__pycache__\n.pytest_cache\n.gpuperf\n")
    commits = []
    for ms in step_ms:
        project.tests(BROKEN if ms is None else FINE)
        if ms is not None:
            project.script(step_ms=ms)
        commits.append(project.commit())
    return commits


def test_git_bisect_names_the_first_bad_commit(project: GitProject) -> None:
    good, _, _, slow, bad = history(project, 10.0, None, 10.0, 11.0, 11.0)
    gpuperf = shlex.split(f"{sys.executable} -m pytest_gpuperf ab {SCRIPTED}")

    project.git("bisect", "start", bad, good)
    found = project.git("bisect", "run", *gpuperf, good, "--", TEST)

    first = project.git("rev-parse", slow)
    assert f"{first} is the first bad commit" in found
    assert project.is_untouched
