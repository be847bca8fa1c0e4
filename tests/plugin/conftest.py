"""Fixtures of the tests that run pytest on a project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from git_project import GitProject
from local_strings import made_local
from scripted_project import ScriptedProject


@pytest.fixture(autouse=True)
def _warm(warm_servers: None) -> None:
    """Start the servers of all runs of these tests in milliseconds."""


@pytest.fixture
def project_of_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> GitProject:
    """A repository with one commit on main, the working directory."""
    for name, value in {
        "CI": "",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_AUTHOR_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "a",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GPUPERF_SCRIPT": "script.json",
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_gpuperf.plugin",
        "PYTHONDONTWRITEBYTECODE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    made = GitProject(tmp_path / "a project")
    made.commit()
    monkeypatch.chdir(made.path)
    return made


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the processes under test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def local_strings(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[str]:
    """What must stand in no file: the user's names, tokens, home, and the project's place."""
    return made_local(project, monkeypatch, tmp_path / "home of ann")
