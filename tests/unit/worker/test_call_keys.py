"""The keys of the calls of one test, which tell them apart in baselines and reports."""

from __future__ import annotations

import re

import pytest

from pytest_gpuperf.errors import StepError
from pytest_gpuperf.worker.measurer import call_key, comparison_key


CALLS, COMPARISONS = ["t", "t#x"], {"t#compare", "t#y"}


@pytest.mark.parametrize(
    ("name", "taken", "call", "comparison"),
    [
        (None, [], "t", "t#compare"),
        (None, [*CALLS, *COMPARISONS], "t#5", "t#compare2"),
        ("z", [*CALLS, *COMPARISONS], "t#z", "t#z"),
    ],
)
def test_calls_are_distinguished_by_name_or_number(
    name: str | None, taken: list[str], call: str, comparison: str
) -> None:
    assert call_key("t", name, taken, ()) == call
    assert comparison_key("t", name, taken) == comparison


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_name_that_the_test_has_already_is_refused(name: str) -> None:
    said = f"name={name!r}): this test has a call of that name already [GP210]"

    with pytest.raises(StepError, match=re.escape(f"gpuperf(step, {said}")):
        call_key("t", name, CALLS, COMPARISONS)
    with pytest.raises(
        StepError, match=re.escape(f"gpuperf.compare(before, after, {said}")
    ):
        comparison_key("t", name, {*CALLS, *COMPARISONS})
