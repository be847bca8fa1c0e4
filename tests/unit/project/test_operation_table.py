"""The table of operations, and the forks in which they are asked about."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from agreement_operations import Answer, Row, Standing, changes


def answer(waits: int = 0, *, inconclusive: int = 0, silent: str = "") -> Answer:
    place = "syncs in forward"
    return Answer(
        counts={place: waits} if waits else {},
        inconclusive={place: inconclusive} if inconclusive else {},
        silent=silent,
    )


def row(*pairs: tuple[Answer, Answer], name: str = "add") -> Row:
    return Row(name=name, simulated=[p for p, _ in pairs], cuda=[c for _, c in pairs])


SAME = row((answer(1), answer(1)), (answer(), answer()))
OTHER = row((answer(1), answer(1)), (answer(), answer(2)), name="mul")
OPEN = row((answer(1, inconclusive=1), answer(1)), name="mode")
MUTE = row((answer(1), answer(silent="it raised")), name="eig")


def test_a_sample_in_which_the_sides_differ_makes_the_operation_differ() -> None:
    assert [r.standing for r in (SAME, OTHER)] == [Standing.AGREE, Standing.DIFFER]
    assert OTHER.shown == "syncs in forward: 0, in fact 2 (1 of 2)"


def test_what_only_a_gpu_can_tell_is_no_agreement() -> None:
    assert OPEN.standing is Standing.DIFFER
    assert OPEN.shown == "syncs in forward: 1 to 2, in fact 1 (1 of 1)"


def test_nothing_has_changed_where_all_is_as_it_is_known() -> None:
    rows = [SAME, OTHER, MUTE]

    assert [*changes(rows, {"mul": "why"}, {"eig": "why"})] == []


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({}, f"mul: differ, known as agree: {OTHER.shown}"),
        ({"mul": "why", "add": "why"}, "add: agree, known as differ: "),
    ],
    ids=["a new difference", "one that has vanished"],
)
def test_a_change_of_what_is_known_is_found(known: dict[str, str], line: str) -> None:
    assert [*changes([SAME, OTHER], known, {})] == [line]
