"""Names of files that keep what was seen of a test."""

from __future__ import annotations

import re

from hypothesis import given, strategies as st

from pytest_gpuperf.files import file_name


@given(st.text(max_size=300))
def test_any_node_id_makes_a_short_safe_name(test: str) -> None:
    name = file_name(test)

    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name)
    assert len(f"memory-{name}.pickle") <= 100


@given(st.lists(st.text(max_size=120), min_size=2, max_size=6, unique=True))
def test_two_node_ids_never_share_a_name(tests: list[str]) -> None:
    assert len({file_name(test) for test in tests}) == len(tests)


def test_the_end_of_a_node_id_can_be_read_in_its_name() -> None:
    name = file_name("tests/test_a.py::test_step[a/b]#train")

    assert name == "tests-test_a.py-test_step-a-b-train-2056705a"


def test_only_the_end_of_a_long_one_is_kept() -> None:
    name = file_name("t.py::test_step[" + "x" * 5000 + "]")

    assert name.startswith("x" * 74 + "-")
    assert len(name) == 74 + 1 + 8
