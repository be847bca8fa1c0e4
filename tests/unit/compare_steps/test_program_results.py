"""Variables that a program's own loops write, as the results of what trains nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.compare_steps.training_record import results_of


pytest.importorskip("torch")

PROGRAM = """\
import torch

rows = torch.ones(3, 2)
kept, table, total, unused = [], torch.zeros(4), 0.0, 5


def inner(x):
    for i in range(2):
        local = x * i
    return local


for step in range(2):
    kept.append(rows.sum())
    table[0].fill_(step)
    table[1] = 2.0
    total += float(inner(rows).sum())
    name = "no number"
if total:
    while total < 20:
        total += 1
"""


def left_by(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "program.py"
    file.write_text(text)
    program: dict[str, Any] = {"__file__": str(file)}
    exec(compile(text, str(file), "exec"), program)  # noqa: S102, of this file
    return results_of(program)


def test_what_loops_write_is_a_result_and_what_they_only_read_is_not(
    tmp_path: Path,
) -> None:
    results = left_by(tmp_path, PROGRAM)

    assert results.keys() == {"kept", "table", "total"}
    assert results["kept"].sums == (6.0, 6.0)
    assert results["table"].sums == (1.0, 2.0, 0.0, 0.0)
    assert results["total"].sums == (20.0,)


@pytest.mark.parametrize("line", ["x = kept", "x = complex(1, 2)", "x = 10**400"])
def test_what_has_no_plain_numbers_is_no_result(tmp_path: Path, line: str) -> None:
    text = f"kept = []\nkept.append(kept)\nfor _ in range(2):\n    {line}\n"

    assert left_by(tmp_path, text) == {}


def test_a_program_without_its_source_has_no_results() -> None:
    assert results_of({"__file__": None, "x": 1.0}) == {}
