"""Which tests are run each day: the quick ones, and one of each feature."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from everyday import PAGE, QUICK, everyday, first_cases, first_of_rows


ROWS = sorted(first_of_rows(PAGE.read_text(encoding="utf-8")))


def item(name: str, *marks: str) -> Any:
    return SimpleNamespace(
        nodeid=name, iter_markers=lambda wanted: (m for m in marks if m == wanted)
    )


def chosen(*items: Any) -> list[str]:
    return [found.nodeid for found in everyday(items)]


def test_the_test_that_a_row_names_first_is_found() -> None:
    page = (
        "| feature | command | test that runs it |\n"
        "| One | `gpuperf one` | `tests/a.py::test_one`<br>`tests/a.py::test_two` |\n"
        "| Three or | `four` | `tests/b.py::TestB::test_three` |\n"
    )

    assert first_of_rows(page) == {
        "tests/a.py::test_one",
        "tests/b.py::TestB::test_three",
    }
    assert len(ROWS) > 100


def test_one_case_of_each_row_is_run_however_slow() -> None:
    rows = [name for name in ROWS if not name.startswith(QUICK)]
    cases = [item(f"{name}[{case}]", "slow") for name in rows for case in "ab"]

    assert chosen(*cases) == [f"{name}[a]" for name in rows]


@pytest.mark.parametrize("name", QUICK)
def test_a_test_of_texts_is_run_in_all_its_cases(name: str) -> None:
    assert chosen(item(f"{name}[a]"), item(f"{name}[b]")) == [
        f"{name}[a]",
        f"{name}[b]",
    ]


def test_a_unit_test_is_run_unless_it_is_slow_and_a_whole_run_is_not() -> None:
    quick, slow = (
        item("tests/unit/a.py::test_a"),
        item("tests/unit/a.py::test_b", "slow"),
    )

    assert chosen(quick, slow, item("tests/plugin/c.py::test_c")) == [quick.nodeid]


def test_another_interpreter_runs_of_each_test_the_first_case_that_is_quick() -> None:
    cases = [item("a::b[1]", "slow"), item("a::b[2]"), item("a::b[3]"), item("a::c")]

    assert [found.nodeid for found in first_cases(cases)] == ["a::b[2]", "a::c"]
