"""Which stored entries have no test any more, as far as a run can know."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_gpuperf.baselines.refresh import Seen, leftovers
from pytest_gpuperf.model.baseline import Leftovers
from pytest_gpuperf.report.screen.acceptance import leftover_lines


SEEN = Seen(
    tests=("a.py::test", "a.py::test[x#y]", "b.py::test"),
    files=frozenset({"a.py", "b.py", "."}),
)
THERE = {"a.py", "b.py", "skipped.py"}


def stale(*keys: str, calls: dict[str, Sequence[str]] | None = None) -> Sequence[str]:
    return leftovers(keys, SEEN, calls or {}, THERE.__contains__, prune=True).entries


def test_tests_that_were_collected_stay() -> None:
    assert stale("a.py::test", "a.py::test[x#y]", "a.py::test#eval") == ()


def test_tests_that_are_not_in_their_file_any_more_are_gone() -> None:
    assert stale("a.py::test", "a.py::old", "a.py::test[z]") == (
        "a.py::old",
        "a.py::test[z]",
    )


def test_tests_of_a_file_that_is_not_there_are_gone() -> None:
    assert stale("removed.py::test", "b.py::test") == ("removed.py::test",)


def test_nothing_is_known_of_a_file_that_was_not_collected() -> None:
    assert stale("skipped.py::test") == ()


def test_calls_that_a_passed_test_does_not_make_any_more_are_gone() -> None:
    calls = {"a.py::test": ["a.py::test#new"]}

    assert stale("a.py::test", "a.py::test#old", "a.py::test#new", calls=calls) == (
        "a.py::test",
        "a.py::test#old",
    )
    assert stale("a.py::test[x#y]#old", calls={"a.py::test[x#y]": []}) == (
        "a.py::test[x#y]#old",
    )


def test_a_test_that_is_there_is_stale_and_not_gone() -> None:
    seen = Seen(tests=("a.py::b",), others=("a.py::test",), files=frozenset({"a.py"}))
    keys = ["a.py::test", "a.py::test#n", "a.py::b#n", "a.py::old"]

    found = leftovers(keys, seen, {"a.py::b": ()}, THERE.__contains__, prune=False)

    assert set(found.entries) == set(keys)
    assert found.gone == ("a.py::old",)


@pytest.mark.parametrize("prune", [True, False])
def test_a_run_of_some_tests_knows_nothing(prune: bool) -> None:  # noqa: FBT001
    partial = Seen(tests=(), obstacle="-k selects some of the tests")

    found = leftovers(["a.py::test"], partial, {}, THERE.__contains__, prune=prune)

    assert found == Leftovers()


@pytest.mark.parametrize(
    ("found", "new", "lines"),
    [
        (Leftovers(), (), []),
        (Leftovers(entries=("a",), gone=("a",), pruned=True), (), []),
        (Leftovers(entries=("a",)), (), []),
        (
            Leftovers(entries=("a", "b"), gone=("a", "b")),
            (),
            [
                "gpuperf: 2 entries of b.json have no test any more, --gpuperf-update=all removes",
                "    them: a, b",
            ],
        ),
        *(
            (
                Leftovers(entries=("a.py::b",), gone=("a.py::b",)),
                new,
                [
                    "gpuperf: 1 entry of b.json has no test any more, --gpuperf-update=all removes",
                    *lines,
                ],
            )
            for new, lines in [
                (("a.py::c", "a.py::d"), ["    it: a.py::b"]),
                (("c.py::d",), ["    it: a.py::b"]),
                (
                    ("c.py::d", "c.py::b"),
                    [
                        "    it: a.py::b; is a.py::b now c.py::b? Name it so in the file: nothing else",
                        "    compares the two",
                    ],
                ),
            ]
        ),
    ],
)
def test_what_is_said_of_them(
    found: Leftovers, new: tuple[str, ...], lines: list[str]
) -> None:
    assert [line.text for line in leftover_lines(found, "b.json", new)] == lines
