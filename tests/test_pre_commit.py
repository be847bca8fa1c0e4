"""The hook of ``.pre-commit-hooks.yaml``, run by pre-commit in a repository that uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, blocks_of

import pytest_gpuperf as gpuperf


yaml = pytest.importorskip("yaml")
pytest.importorskip("pre_commit")
pytest.importorskip("torch")

TRAIN = """\
import torch

x = torch.ones(1, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x])
for _ in range(3):
    (2 * x).backward()
    optimizer.step()
    x.detach()
"""
WAITS = TRAIN.replace("x.detach()", "x.item()")


def git(folder: Path, *typed: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(
        ["git", "-C", str(folder), *author, *typed],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def committed(folder: Path) -> str:
    """Make a repository of *folder*, and return its commit."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two scripts and what is no script to run."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN, "utf-8")
    (folder / "evaluate.py").write_text(TRAIN, "utf-8")
    (folder / "setup.py").write_text("raise SystemExit('it was run')\n", "utf-8")
    committed(folder)
    return folder


def checked(project: Path, **hook: Any) -> subprocess.CompletedProcess[str]:
    """Have pre-commit check all files of *project* with the hook, changed by *hook*."""
    ours = project.parent / "ours"
    ours.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", ours)
    used = {"id": "gpuperf-audit", "verbose": True, **hook}
    repository = {"repo": str(ours), "rev": committed(ours), "hooks": [used]}
    config = yaml.safe_dump({"repos": [repository]})
    (project / ".pre-commit-config.yaml").write_text(config, "utf-8")
    git(project, "add", "--all")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never"],
        cwd=project,
        env={
            **os.environ,
            "PATH": programs,
            "PRE_COMMIT_HOME": str(project.parent / "cache"),
        },
        capture_output=True,
        check=False,
        text=True,
    )


def test_a_script_that_waits_in_each_step_stops_the_commit(project: Path) -> None:
    (project / "train.py").write_text(WAITS, "utf-8")

    done = checked(project, files="^(train|evaluate)[.]py$")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "train.py:8" in done.stdout
    assert "1 sync per step: more than --max-syncs-per-step=0" in done.stdout
    assert done.stdout.count("\n== ") == 2


def test_scripts_without_a_wait_pass(project: Path) -> None:
    done = checked(project, files="^(train|evaluate)[.]py$")

    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_run_that_was_not_named(project: Path) -> None:
    done = checked(project)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "no files to check" in done.stdout


def test_the_example_of_the_page_is_a_configuration_and_names_the_hook(
    tmp_path: Path,
) -> None:
    page = (ROOT / "docs" / "reference" / "commands" / "audit.md").read_text("utf-8")
    (block,) = (b for b in blocks_of(page) if b.name == ".pre-commit-config.yaml")
    (tmp_path / block.name).write_text(block.text, "utf-8")

    command = [sys.executable, "-m", "pre_commit", "validate-config", block.name]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, check=False, text=True
    )

    assert done.returncode == 0, done.stdout
    (repository,) = yaml.safe_load(block.text)["repos"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert [h["id"] for h in repository["hooks"]] == [h["id"] for h in hooks]
    assert repository["rev"] == f"v{gpuperf.__version__}"
