"""How far a run is: counted where processes start, on a clock that is set."""

from __future__ import annotations

import pytest

from pytest_gpuperf.report.screen.summary import duration, progress_text
from pytest_gpuperf.runner.pool import Progress


GROUPS = [("t.py::a",), ("t.py::b", "t.py::c"), ("t.py::d",)]


class Followed:
    """What was said, and a clock."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.now = 0.0
        self.progress = Progress(self.said.append, lambda: self.now)

    def run(self, index: int, seconds: float) -> None:
        self.progress.started(index)
        self.now += seconds
        self.progress.ended(index)


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_which_test_how_many_and_how_long_is_said(followed: Followed) -> None:
    for number in range(2):
        followed.progress.begin(GROUPS, number)
        for index, seconds in enumerate((10.0, 20.0, 30.0)):
            followed.run(index, seconds)

    assert followed.said == [
        "gpuperf: measuring 0/4 tests, run 1, 0 s: t.py::a",
        "gpuperf: measuring 1/4 tests, run 1, 10 s: t.py::b",
        "gpuperf: measuring 3/4 tests, run 1, 30 s: t.py::d",
        "gpuperf: measuring 0/4 tests, run 2, 1 min 0 s: t.py::a",
        "gpuperf: measuring 1/4 tests, run 2, 1 min 10 s: t.py::b",
        "gpuperf: measuring 3/4 tests, run 2, 1 min 30 s: t.py::d",
    ]


def test_a_step_that_arrives_is_named(followed: Followed) -> None:
    followed.progress.begin(GROUPS, 0)
    followed.progress.started(1)
    followed.progress.arrived("t.py::c#train")

    assert followed.said[-1] == (
        "gpuperf: measuring 0/4 tests, run 1, 0 s: t.py::c#train"
    )


def test_what_is_done_to_a_step_stands_before_its_name_if_there_is_room(
    followed: Followed,
) -> None:
    followed.progress.begin(GROUPS, 0)
    followed.progress.arrived("t.py::b", "round 12/20")
    followed.progress.arrived("t.py::b", "a part that takes " + "many " * 8 + "words")

    assert followed.said == [
        "gpuperf: measuring 0/4 tests, run 1, 0 s, round 12/20: t.py::b",
        "gpuperf: measuring 0/4 tests, run 1, 0 s: t.py::b",
    ]


def test_what_waits_in_silence_is_said_again(followed: Followed) -> None:
    followed.progress.begin(GROUPS, 0)
    followed.progress.arrived("t.py::b", "round 12/20")
    followed.now += 3.0

    followed.progress.waiting()

    assert followed.said[-1] == (
        "gpuperf: measuring 0/4 tests, run 1, 3 s, round 12/20: t.py::b"
    )


def test_tests_that_run_a_few_at_a_time_are_counted_together(
    followed: Followed,
) -> None:
    followed.progress.among(3, 9)
    followed.progress.begin(GROUPS, 0)
    followed.progress.started(0)

    assert followed.said[-1] == "gpuperf: measuring 3/9 tests, run 1, 0 s: t.py::a"


@pytest.mark.parametrize(
    ("test", "shown"),
    [
        ("tests/test_a.py::test_b", ": tests/test_a.py::test_b"),
        (f"tests/{'deep/' * 12}test_a.py::test_b", ": test_b"),
        (f"t.py::test_b[{'x' * 80}]", ""),
    ],
)
def test_a_name_that_has_no_room_is_left_out_and_never_cut(
    test: str, shown: str
) -> None:
    text = progress_text("gpuperf: tracing 1/3 tests", "", test)

    assert text == f"gpuperf: tracing 1/3 tests{shown}"
    assert len(text) < 80


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "59 s"), (200, "3 min 20 s")]
)
def test_a_duration_has_minutes_where_it_needs_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
