"""What pages say was measured is what was recorded."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest


pytest.importorskip("torch")

ROOT: Final = Path(__file__).parents[3]
sys.path.append(str(ROOT / "benchmarks"))

from linters import looped


EVIDENCE: Final = ROOT / "benchmarks" / "evidence"


def text_of(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


# Linters.


def test_the_table_of_linters_is_the_one_that_was_recorded() -> None:
    recorded = EVIDENCE.joinpath("linters.md").read_text(encoding="utf-8")
    rows = [line for line in recorded.splitlines() if line.startswith("|")]

    assert len(rows) >= 7
    assert "\n".join(rows) in text_of("docs", "compare", "README.md")


def test_a_function_becomes_a_loop_that_trains_and_lines_keep_their_numbers() -> None:
    made = list(looped("import torch\n\n\ndef f():\n    x = 1\n\n    return x\n"))

    assert [line for line, _ in made] == [
        "import torch",
        "",
        "",
        "def f():",
        "    for batch in loader:",
        "        x = 1",
        "",
        "        return x",
        "        loss.backward()",
    ]
    assert [number for _, number in made] == [1, 2, 3, 4, 0, 5, 6, 7, 0]


# The numbers of the README.


def test_false_blame_in_the_readme_is_the_worst_that_was_recorded() -> None:
    recorded = text_of("benchmarks", "evidence", "verdicts.md")
    recorded = recorded.partition("| nothing changed |")[2]
    table = recorded.partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (gpuperf|\S+, `min:5%`) \|(.+)$", table, re.MULTILINE))
    worst = {
        name: max(float(cell) for cell in re.findall(r"[\d.]+", row))
        for name, row in rows.items()
    }

    assert f"at most {worst['gpuperf']} %" in text_of("README.md")
    assert f"up to {worst['pytest-benchmark, `min:5%`']} %" in text_of("README.md")


def test_waits_that_were_found_are_those_of_the_record() -> None:
    recorded = text_of("benchmarks", "evidence", "linters.md")
    lines = re.findall(r"found, of (\d+)", recorded)[0]
    found = dict(
        re.findall(r"^\| (\S+).*\| (?:yes|no) \| (\d+) ", recorded, re.MULTILINE)
    )
    first = re.findall(r"it found (\d+ of \d+) lines", recorded)[0]

    linters = max(int(n) for name, n in found.items() if name != "gpuperf")
    assert f"{first}, one false; today {found['gpuperf']} of {lines}" in text_of(
        "README.md"
    )
    assert f": at most {linters} |" in text_of("README.md")


def test_exact_peaks_are_those_of_the_record() -> None:
    recorded = text_of("benchmarks", "evidence", "agreement-bytes.md")
    programs, exact = re.findall(
        r"^(\d+) programs: .* (\d+) exact", recorded, re.MULTILINE
    )[0]

    assert f"exact in {exact} of {programs} programs" in text_of("README.md")
