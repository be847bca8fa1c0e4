"""The breaks of the CUDA path fit the code that is there, and their table shows each."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "benchmarks"))

from mutation_cases import MUTATIONS  # noqa: E402, found there
from mutation_cases import Mutation  # noqa: E402
from mutation_cases import broken_text  # noqa: E402


LEAST_MODULES = 12


def ids(mutation: Mutation) -> str:
    return f"{mutation.file} {mutation.broken}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=ids)
def test_a_break_changes_one_place_of_its_module_which_stays_python(
    mutation: Mutation,
) -> None:
    text = (ROOT / "pytest_gpuperf" / mutation.file).read_text("utf-8")

    broken = broken_text(mutation, text)

    assert broken != text
    ast.parse(broken)
    assert (ROOT / mutation.tests[0]).exists()


def test_a_text_that_is_no_longer_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected once, found 0 times"):
        broken_text(MUTATIONS[0], "")


def test_the_breaks_are_of_many_modules_and_each_stands_in_the_evidence() -> None:
    page = (ROOT / "benchmarks" / "evidence" / "mutations-stub-cuda.md").read_text(
        "utf-8"
    )
    rows = [f"| `{m.file}` | {m.broken} | {m.part} | `" for m in MUTATIONS]

    assert len({mutation.file for mutation in MUTATIONS}) >= LEAST_MODULES
    assert [row for row in rows if page.count(row) != 1] == []
