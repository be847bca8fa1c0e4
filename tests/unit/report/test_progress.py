"""How far a run is: counted where processes start, on a clock that is set."""

from __future__ import annotations

import pytest

from pytest_gpuperf.report.screen.progress import Standing
from pytest_gpuperf.report.screen.progress import progress_text
from pytest_gpuperf.runner.progress import Progress


GROUPS = [("t.py::a",), ("t.py::b", "t.py::c"), ("t.py::d",)]


class Followed:
    """What was said, and a clock."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.now = 0.0
        self.progress = Progress(self.said.append, lambda: self.now)

    def begin(self, number: int = 0, side_by_side: int = 1) -> None:
        slots = [(index % side_by_side,) for index in range(len(GROUPS))]
        self.progress.begin(GROUPS, number, slots)

    def run(self, index: int, seconds: float) -> None:
        self.progress.started(index)
        self.now += seconds
        self.progress.ended(index)


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_the_first_run_estimates_what_is_left_by_what_is_done(
    followed: Followed,
) -> None:
    followed.begin()
    for index, seconds in enumerate((10.0, 20.0, 30.0)):
        followed.run(index, seconds)

    assert followed.said == [
        "gpuperf: measuring 0/4 tests, run 1: t.py::a",
        "gpuperf: measuring 1/4 tests, run 1 (about 20 s left): t.py::b",
        "gpuperf: measuring 3/4 tests, run 1 (about 15 s left): t.py::d",
    ]


def test_a_refresh_counts_the_runs_that_will_come(followed: Followed) -> None:
    followed.begin()
    for index, seconds in enumerate((10.0, 20.0, 30.0)):
        followed.run(index, seconds)
    followed.progress.expect(dict.fromkeys(GROUPS, 8))

    followed.begin(number=1)
    followed.progress.started(0)

    assert followed.said[-1] == (
        "gpuperf: measuring 0/4 tests, run 2 of 8, about 7 min 40 s left: t.py::a"
    )


def test_a_step_that_arrives_is_named(followed: Followed) -> None:
    followed.begin()
    followed.progress.started(1)
    followed.progress.arrived("t.py::c#train")

    assert followed.said[-1] == "gpuperf: measuring 0/4 tests, run 1: t.py::c#train"


def test_a_part_that_has_no_room_is_left_out(followed: Followed) -> None:
    followed.begin()
    followed.run(0, 10.0)
    followed.progress.arrived("t.py::b", "a part that takes a word too many")

    assert followed.said[-1] == (
        "gpuperf: measuring 1/4 tests, run 1 (about 20 s left): t.py::b"
    )


def test_progress_that_is_not_shown_estimates_what_is_left_as_well() -> None:
    now = iter((0.0, 10.0))
    progress = Progress(None, lambda: next(now))
    progress.begin(GROUPS, 0, [(0,)] * len(GROUPS))

    progress.started(0)
    progress.ended(0)

    assert progress.seconds_for({GROUPS[0]: 2}) == pytest.approx(10.0, rel=0.5)


def test_devices_side_by_side_share_what_is_left(followed: Followed) -> None:
    followed.begin(side_by_side=2)
    followed.run(0, 10.0)
    followed.progress.started(1)

    assert followed.said[-1] == (
        "gpuperf: measuring 1/4 tests, run 1 (about 10 s left): t.py::b"
    )


def test_a_run_that_traces_has_no_number(followed: Followed) -> None:
    followed.begin()
    followed.run(0, 10.0)

    followed.progress.begin([("t.py::a",)], None, [(0,)])
    followed.progress.started(0)

    assert followed.said[-1] == ("gpuperf: tracing 0/1 tests, about 10 s left: t.py::a")


def standing(test: str) -> Standing:
    return Standing(
        doing="tracing",
        done=1,
        total=3,
        run=None,
        runs=None,
        seconds_left=None,
        test=test,
    )


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
    text = progress_text(standing(test))

    assert text == f"gpuperf: tracing 1/3 tests{shown}"
    assert len(text) < 80


def test_what_is_done_to_a_step_stands_before_its_name(followed: Followed) -> None:
    followed.begin()
    followed.run(0, 10.0)
    followed.progress.arrived("t.py::b", "round 12/20")

    assert followed.said[-1] == (
        "gpuperf: measuring 1/4 tests, run 1 (about 20 s left), round 12/20: t.py::b"
    )


def test_what_waits_in_silence_is_said_again(followed: Followed) -> None:
    followed.begin()
    followed.run(0, 10.0)
    followed.progress.arrived("t.py::b", "round 12/20")

    followed.progress.waiting()

    assert followed.said[-1] == followed.said[-2]


def test_a_run_that_is_made_up_for_says_how_many_there_may_be(
    followed: Followed,
) -> None:
    followed.begin()
    followed.run(0, 10.0)
    followed.progress.expect({GROUPS[0]: 2})

    followed.begin(number=2)
    followed.progress.started(0)

    assert "run 3 of at most 10, about" in followed.said[-1]


def test_tests_that_run_a_few_at_a_time_are_counted_together(
    followed: Followed,
) -> None:
    followed.progress.among(3, 9)
    followed.begin()
    followed.progress.started(0)

    assert followed.said[-1] == "gpuperf: measuring 3/9 tests, run 1: t.py::a"
