"""DuckDB reads the files of a history: the query of the guide, on a few of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import blocks_of
from documents import text_of
from history_rows import H200
from history_rows import STEP
from history_rows import keep
from history_rows import row


def test_the_query_of_the_guide_names_the_slowest_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    for number, value in enumerate((12.0, 12.2, 12.1)):
        keep(
            Path("history"),
            f"{H200}/{number}.jsonl.gz",
            row(number, value),
            row(number, test="t.py::test_counts", metrics={"syncs": 1}, commit=None),
            row(number, test="t.py::test_fast", metrics={"step_ms": 1.0}),
        )
    text = text_of("docs/guides/history.md")
    (query,) = [b.text for b in blocks_of(text) if b.name == "history_query.py"]
    names: dict[str, object] = {}

    exec(query, names)  # noqa: S102 - the document's own

    assert names["slowest"].fetchall() == [  # type: ignore[attr-defined]
        (STEP, H200, 12.1, 3),
        ("t.py::test_fast", H200, 1.0, 3),
    ]
    points = duckdb.sql("select count(*) from 'history.parquet'").fetchall()
    assert points == [(3 * (2 + 1 + 1),)]
