"""``gpuperf audit --fix`` of examples of this repository in which syncs are planted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from planted_syncs import NUMBER, PLANTED, planted

from pytest_gpuperf.cli import main


pytest.importorskip("torch")
pytest.importorskip("libcst")

pytestmark = pytest.mark.slow

WIDTH = 88
"""Columns that black and ruff give a line."""

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", PLANTED)
def test_each_sync_that_is_planted_in_an_example_is_repaired(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(copy)
    file = Path(name)
    before = file.read_text(encoding="utf-8")
    text = planted(before, PLANTED[name])
    file.write_text(text, encoding="utf-8")
    program = ["-m", "pytest", "--", name] if "test_" in name else [name]

    options = ("--fix", "--unsafe", "--allow-dirty", "--json", "--root=.")
    assert main(["audit", *options, *program]) == 0

    document = json.loads(capfd.readouterr().out)
    known = before.splitlines()
    new = [n for n, line in enumerate(text.splitlines(), 1) if line not in known]
    edits = [each for each in document["fixes"]["edits"] if each["in_diff"]]
    repaired = [each for each in edits if each["line"] in new]
    assert len(repaired) == NUMBER // len(PLANTED)
    assert {each["same_training"] for each in repaired} == {"in every digit"}
    after = file.read_text(encoding="utf-8")
    assert f"{after.rstrip()}\n" == after
    widest = max(map(len, after.splitlines()))
    assert widest <= max(WIDTH, *map(len, text.splitlines()))
