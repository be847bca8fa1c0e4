"""Where a run stands in its repository, and what belongs to its project."""

from __future__ import annotations

from pathlib import Path

import pytest

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
