"""What a reviewer reads of a changed baseline: a few lines, and only what was measured."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from builders import an_entry, baselines
from scripted_project import ScriptedProject

from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.cli import main


README = Path(__file__).parents[2] / "README.md"

COUNTER = """\
        with torch.no_grad():
            right.append((model(images).argmax(1) == labels).sum().item())
"""

SIMULATED = ("--gpuperf", "--gpuperf-device=simulated")


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.json"))
    }


def put_back(folder: Path, found: Mapping[str, str]) -> None:
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")


def changed_lines(before: Path, after: Path) -> int:
    """Count what ``git diff --stat`` counts."""
    asked = ["git", "diff", "--no-index", "--numstat", str(before), str(after)]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return sum(int(n) for row in said.splitlines() for n in row.split("\t")[:2])


def test_one_sync_more_in_the_test_of_the_readme_is_a_diff_of_four_lines(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("torch")
    found = re.search(
        r"```python test_train.py\n(.*?)```",
        README.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert found is not None
    clean = found[1]
    folder, before = pytester.path / "baselines", pytester.path / "before"
    pytester.makepyfile(test_train=clean)
    pytester.runpytest_inprocess(*SIMULATED, "--gpuperf-update=missing")
    stored = files(folder)

    pytester.runpytest_inprocess(*SIMULATED, "--gpuperf-update=all")
    assert files(folder) == stored

    with_sync = clean.replace("def step():\n", f"def step():\n{COUNTER}")
    right = with_sync.replace("    def step", "    right = []\n\n    def step")
    pytester.makepyfile(test_train=right)
    pytester.runpytest_inprocess(*SIMULATED, "--gpuperf-update=drift")
    refreshed = files(folder)
    for name, text in stored.items():
        (before / name).parent.mkdir(parents=True, exist_ok=True)
        (before / name).write_text(text, encoding="utf-8")
    assert len(stored) == 2
    assert 0 < changed_lines(before, folder) <= 4

    put_back(folder, stored)
    assert main(["accept", "--accept-drift", ".gpuperf"]) == 0
    assert files(folder) == refreshed


def test_a_refresh_without_a_change_writes_nothing_three_times(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.script({"*": {"step_ms": [10.0, 10.1, 9.9], "syncs": 2}})
    project.refresh()
    stored = project.baseline.stat().st_mtime_ns, project.baseline.read_text()

    for _ in range(3):
        project.refresh(which="all")

        now = project.baseline.stat().st_mtime_ns, project.baseline.read_text()
        assert now == stored


@pytest.mark.parametrize("exact", [{"syncs": 1}, {"syncs": 1, "launches": 9}])
def test_branches_that_refresh_different_tests_merge(
    exact: dict[str, int], tmp_path: Path
) -> None:
    usual = {name: an_entry(None, exact={"syncs": 0}, lines=()) for name in "abc"}
    other = an_entry(None, exact=exact, lines=())
    sides = (usual | {"a": other}, usual, usual | {"b": other})
    for name, entries in zip(("ours", "base", "theirs"), sides, strict=True):
        (tmp_path / name).write_text(dumps(baselines(**entries)), encoding="utf-8")

    merged = subprocess.run(
        ["git", "merge-file", "-p", "ours", "base", "theirs"],  # noqa: S607
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert loads(merged.stdout, "it").entries == usual | {"a": other, "b": other}
