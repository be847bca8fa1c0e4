"""What an audit found, as a table and as JSON: whole outputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_finding
from golden_audits import COUNTS, an_audit

from pytest_gpuperf.report.document import Place, source_lines
from pytest_gpuperf.report.json import audit_document


def test_the_document_of_what_never_touched_the_gpu_says_that_nothing_was_judged() -> (
    None
):
    audit = an_audit(copies=(), steps=0)
    document = audit_document(
        replace(audit, totals=replace(audit.totals, counts={**COUNTS, "launches": 0})),
        (),
    )

    assert document["judged"] is False
    assert document["notes"] == ["nothing ran on the GPU, so nothing was judged"]


@pytest.mark.parametrize("before", ["", "b + " * 40])
@pytest.mark.parametrize("behind", ["", " + b" * 40])
def test_a_line_that_is_too_long_says_where_it_was_cut(
    before: str, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = a_finding(source=f"{before}a.item(){behind}")

    line, mark, *_ = source_lines(
        Place("train.py:12", found, "the CPU reads", (len(before) + 1, 7))
    )

    source = line.partition(" | ")[2]
    assert len(line) <= 80
    assert source.startswith("...") == bool(before)
    assert source.endswith("...") == bool(behind)
    at = mark.index("^")
    assert line[at : at + 7] == ".item()"
