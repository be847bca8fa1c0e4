"""What operations do on CUDA, as a document, a page and next to NVIDIA's catalogue."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

import pytest


ROOT: Final = Path(__file__).parents[3]
sys.path.append(str(ROOT / "benchmarks"))
sys.path.append(str(ROOT / "tests" / "stub_cuda"))

from agreement_table import KNOWN
from syncs import (
    PATTERNS,
    Answer,
    Does,
    Operation,
    catalogue,
    compared,
    page,
    read,
    written,
)
from torches import NEWEST_TORCHES


EVIDENCE: Final = ROOT / "benchmarks" / "evidence"
REFERENCE: Final = ROOT / "docs" / "reference"
PINNED: Final = re.findall(
    r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE
)[0]


def operations() -> list[Operation]:
    return read(json.loads((REFERENCE / "syncs.json").read_text(encoding="utf-8")))


# Operations that wait.


def test_the_page_of_syncs_is_what_the_document_says() -> None:
    tables = (
        (REFERENCE / "syncs.md").read_text("utf-8").partition("syncs.py -->\n\n")[2]
    )

    assert tables == page(operations())


def test_each_operation_runs_and_has_an_answer_of_many_releases() -> None:
    found = operations()

    assert len(found) >= 40
    for each in found:
        compile(each.program.text, each.program.operation, "exec")
        assert each.program.prepared
        assert each.program.code
        assert not each.cuda[PINNED].failed, each.program.operation


def test_each_release_that_was_asked_has_an_answer_of_each_program_and_side() -> None:
    asked = set(operations()[0].cuda)

    assert asked == {*NEWEST_TORCHES}
    assert PINNED in asked
    for each in operations():
        assert set(each.cuda) == set(each.simulated) == asked, each.program.operation


def said(**by_release: Answer) -> list[str]:
    """The lines of the page about ``x[0]`` with these answers, by ``torch_2_6_0``."""
    programs = (each.program for each in operations())
    program = next(each for each in programs if each.operation == "x[0]")
    answers = {
        name.removeprefix("torch_").replace("_", "."): answer
        for name, answer in by_release.items()
    }
    one = Operation(program=program, cuda=answers, simulated=answers)
    return [line for line in page([one]).splitlines() if "x[0]" in line]


def test_an_operation_that_is_the_same_in_all_releases_stands_there_once() -> None:
    twice = Answer(syncs=2)

    assert said(torch_2_6_0=twice, torch_2_10_1=twice) == ["| indexing | `x[0]` (2) |"]


def test_one_that_changed_lists_its_releases_together_where_they_are_equal() -> None:
    once, twice = Answer(syncs=1), Answer(syncs=2)

    assert said(
        torch_2_10_1=Answer(), torch_2_6_0=twice, torch_2_7_1=twice, torch_2_8_0=once
    ) == ["| `x[0]` | 2.6 to 2.7: waits 2 times; 2.8: waits; 2.10: nothing |"]


def test_what_did_not_run_on_a_release_says_so_and_why() -> None:
    failed = Answer(failed="AttributeError: no such thing")

    assert said(torch_2_6_0=failed, torch_2_7_1=Answer(copies=1)) == [
        "| `x[0]` | 2.6: not run, `AttributeError: no such thing`; 2.7: copies |"
    ]


def test_the_document_is_read_as_it_was_written() -> None:
    assert read(written(operations())) == operations()


def test_the_simulated_gpu_says_what_cuda_does_or_there_is_a_reason() -> None:
    differing = {
        each.program.operation
        for each in operations()
        for release, cuda in each.cuda.items()
        if cuda.does is not each.simulated[release].does and not cuda.failed
    }

    assert differing == {*KNOWN["syncs"]}


def test_it_waits_as_often_as_cuda_or_there_is_a_reason() -> None:
    miscounted = {
        each.program.operation
        for each in operations()
        for release, cuda in each.cuda.items()
        if cuda.syncs != each.simulated[release].syncs
    }

    assert miscounted == {*KNOWN["miscounted_syncs"]}


@pytest.mark.parametrize(
    ("answer", "does"),
    [
        (Answer(syncs=1, copies=1), Does.WAITS),
        (Answer(inconclusive=1, copies=1), Does.MAY_WAIT),
        (Answer(copies=1), Does.COPIES),
        (Answer(), Does.NOTHING),
        (Answer(syncs=1, failed="RuntimeError"), Does.UNKNOWN),
    ],
)
def test_an_answer_is_the_worst_of_what_happened(answer: Answer, does: Does) -> None:
    assert answer.does is does


# NVIDIA's catalogue.


def test_each_of_28_patterns_agrees_with_nvidia_s_catalogue_or_has_its_reason() -> None:
    rows = [
        row
        for release in operations()[0].cuda
        for row in compared(operations(), release)
    ]

    assert len(PATTERNS) == 28
    assert {row.operation for row in rows} >= {p.operation for p in PATTERNS}
    assert [row for row in rows if row.agrees == bool(row.reason)] == []


def test_the_record_of_the_catalogue_is_what_the_document_says() -> None:
    recorded = EVIDENCE.joinpath("catalogue.md").read_text(encoding="utf-8")

    assert recorded == catalogue(operations())
