"""An error has one id, which ends its text wherever that is shown."""

from __future__ import annotations

import pickle

import pytest

from pytest_gpuperf.errors import (
    ErrorId,
    GpuperfError,
    QuotedError,
    RunError,
    StepError,
    UsageError,
)


KINDS = (UsageError, QuotedError, StepError, RunError)


@pytest.mark.parametrize("kind", KINDS)
def test_the_id_ends_the_text(kind: type[GpuperfError]) -> None:
    error = kind("there is no such file", ErrorId.GP527)

    assert str(error) == "there is no such file [GP527]"
    assert error.text == "there is no such file"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_ends_with_another_one_has_the_id_of_that(
    kind: type[GpuperfError],
) -> None:
    cause = UsageError("git knows no such commit", ErrorId.GP702)
    error = kind(f"--gpuperf-seed=x: {cause}", ErrorId.GP101)

    assert error.error_id is ErrorId.GP702
    assert str(error) == "--gpuperf-seed=x: git knows no such commit [GP702]"


@pytest.mark.parametrize("end", ["t.py::test_a[GP101]", "x [GP999]", "x [GP101] y"])
def test_what_only_looks_like_an_id_is_text(end: str) -> None:
    assert str(StepError(end, ErrorId.GP210)) == f"{end} [GP210]"


def test_the_id_ends_the_last_line_of_what_another_program_said() -> None:
    error = RunError("it died:\nTraceback\nKeyError: 1\n", ErrorId.GP602)

    assert str(error) == "it died:\nTraceback\nKeyError: 1 [GP602]"


def test_what_came_into_the_text_is_made_visible_and_the_id_is_not_hidden() -> None:
    assert str(UsageError("a\nb\u202e", ErrorId.GP102)) == "a\\nb\\u202e [GP102]"


def test_an_error_keeps_its_id_where_it_is_pickled() -> None:
    error = pickle.loads(pickle.dumps(UsageError("no", ErrorId.GP101)))  # noqa: S301

    assert (type(error), str(error)) == (UsageError, "no [GP101]")
