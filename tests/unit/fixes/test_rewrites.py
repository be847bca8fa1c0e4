"""Each edit waits less and prints the same; what is not understood stays as it is."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixed_programs import FIXED, NOT_FIXED, START


torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.fixes.edits import ByHand, Edit
from pytest_gpuperf.fixes.rewrites import edits_of


pytestmark = pytest.mark.filterwarnings("ignore")

HERE = Path(__file__).parent
FILE = HERE / "program.py"


def parts(change: str) -> tuple[str, str]:
    lines = change.strip("\n").split("\n")
    before = [line[2:] for line in lines if not line.startswith("+")]
    after = [line[2:] for line in lines if not line.startswith("-")]
    return "\n".join([*before, ""]), "\n".join([*after, ""])


def run(program: str) -> tuple[StepAudit, list[str]]:
    """What a program did on the simulated GPU, and printed."""
    printed: list[str] = []
    names: dict[str, Any] = {
        "__name__": "__main__",
        "print": lambda *words: printed.append(" ".join(map(str, words))),
    }
    text = START + program
    linecache.cache[str(FILE)] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        str(FILE),
    )
    with simulated_gpu(str(HERE)) as gpu:
        gpu.recorder.starts = (0,)
        gpu.begin_step()
        exec(compile(text, str(FILE), "exec"), names)  # noqa: S102, our own programs
        return gpu.end_step(), printed


def edits(audit: StepAudit, program: str) -> Iterator[Edit | ByHand]:
    for finding in (*audit.findings, *audit.not_checked):
        yield from edits_of(finding, START + program, FILE)


@pytest.mark.parametrize("change", FIXED.values(), ids=FIXED)
def test_a_program_is_edited_as_a_person_would_and_prints_the_same(change: str) -> None:
    before, after = parts(change)
    audit, printed = run(before)
    found = [e for e in edits(audit, before) if isinstance(e, Edit)]

    assert START + after in [edit.after for edit in found], found
    fixed, prints = run(after)
    assert prints == printed
    assert fixed.totals.syncs + fixed.totals.inconclusive < (
        audit.totals.syncs + audit.totals.inconclusive
    )


@pytest.mark.parametrize(("why", "program"), NOT_FIXED.values(), ids=NOT_FIXED)
def test_what_is_not_understood_is_left_to_its_author(why: str, program: str) -> None:
    audit, _ = run(program)
    found = [*edits(audit, program)]

    assert found
    for edit in found:
        assert isinstance(edit, ByHand), edit
        assert re.search(why, edit.why)
