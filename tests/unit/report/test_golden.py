"""Outputs that people and programs read, compared byte for byte with stored files.

``GPUPERF_GOLDEN=write pytest tests/unit/report/test_golden.py`` writes the files in
``tests/unit/report/golden`` anew; what it changed is then a diff to be read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from golden_audits import AUDITS
from golden_ci import CI
from golden_commands import COMMANDS
from golden_failures import FAILURES
from golden_judge import JUDGE
from golden_lines import LINES
from golden_pages import PAGES
from golden_runs import RUNS
from golden_watches import WATCHES


AREAS: Final = (FAILURES, RUNS, AUDITS, WATCHES, COMMANDS, JUDGE, LINES, PAGES, CI)
CASES: Final = {name: make for area in AREAS for name, make in area.items()}
FOLDER: Final = Path(__file__).with_name("golden")
WRITES: Final = os.environ.get("GPUPERF_GOLDEN") == "write"


@pytest.fixture(autouse=True)
def one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder and a terminal of 80 columns, whatever is around."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.parametrize("name", CASES)
def test_an_output_is_what_is_stored_to_the_byte(name: str) -> None:
    text, path = CASES[name](), FOLDER / name
    if WRITES:
        path.write_bytes(text.encode())

    stored = path.read_bytes().decode() if path.exists() else "no file is stored"
    assert text == stored


def test_each_stored_file_belongs_to_a_case() -> None:
    strays = {path.name for path in FOLDER.iterdir()} - set(CASES)
    if WRITES:
        for name in strays:
            (FOLDER / name).unlink()

    assert WRITES or strays == set()


def test_no_two_areas_have_a_case_of_one_name() -> None:
    assert len(CASES) == sum(map(len, AREAS))
