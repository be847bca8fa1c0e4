"""What a precision costs, in whole sentences."""

from __future__ import annotations

import pytest

from pytest_gpuperf.model.verdict import Effort
from pytest_gpuperf.report.screen.precision import duration
from pytest_gpuperf.report.screen.precision import fresh_text
from pytest_gpuperf.report.screen.precision import stored_text


def needs(fresh: int = 5, stored: int = 8) -> Effort:
    return Effort(stored=stored, fresh=fresh, reached=True, floor=0.01)


def misses(floor: float) -> Effort:
    return Effort(stored=8, fresh=5, reached=False, floor=floor)


def test_a_gate_says_what_its_undecided_tests_will_cost() -> None:
    judged = [*[needs(9)] * 12, *[needs()] * 20, *[misses(0.0502)] * 4]

    assert fresh_text(0.02, judged, judged[:12], 200.2).splitlines() == [
        "gpuperf: precision 2 %: 12 undecided tests need up to 9 runs each, about 3 min",
        "    20 s at most; 4 tests cannot reach it on this machine, at best 5.1 %",
    ]


def test_what_is_possible_at_best_is_a_span_if_tests_differ() -> None:
    judged = [needs(5), needs(9), misses(0.0302), misses(0.112)]

    assert fresh_text(0.025, judged, judged, 40).splitlines() == [
        "gpuperf: precision 2.5 %: 4 undecided tests need up to 9 runs each, about 40 s",
        "    at most; 2 tests cannot reach it on this machine, at best 3.1 % to 12 %",
    ]


def test_where_every_test_is_decided_nothing_more_is_run() -> None:
    assert fresh_text(0.02, [needs(9)], [], 0.0) == (
        "gpuperf: precision 2 %: no test needs another run"
    )


def test_a_gate_names_the_refresh_that_would_help() -> None:
    judged = [misses(0.019), misses(0.021)]

    assert fresh_text(0.02, judged, judged[:1], 3.4).splitlines() == [
        "gpuperf: precision 2 %: 1 undecided test needs up to 5 runs, about 3 s at most;",
        "    1 test cannot reach it on this machine, at best 2.1 %; 1 test can reach it",
        "    after a refresh with this precision has stored more runs",
    ]


@pytest.mark.parametrize(
    ("recorded", "seconds", "told"),
    [
        ([needs()] * 3, 0.0, "8 stored runs are enough for 3 tests"),
        ([needs(), needs(stored=9)], 1.0, "1 test needs 1 more run, about 1 s left"),
        (
            [needs(stored=9), needs(stored=20)],
            75.0,
            "2 tests need 1 to 12 more runs, about 1 min 15 s left",
        ),
        (
            [misses(0.0201)],
            0.0,
            "1 test cannot reach it on this machine, at best 2.1 %",
        ),
    ],
)
def test_a_refresh_says_how_many_runs_it_adds(
    recorded: list[Effort], seconds: float, told: str
) -> None:
    sentence = " ".join(stored_text(0.02, recorded, seconds).split())

    assert sentence == f"gpuperf: precision 2 %: {told}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "about 0 s"), (59.6, "about 1 min 0 s"), (200, "about 3 min 20 s")],
)
def test_a_duration_has_minutes_where_it_needs_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
