"""How long something takes, in words."""

from __future__ import annotations

import pytest

from pytest_gpuperf.report.screen.precision import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "about 0 s"), (59.6, "about 1 min 0 s"), (200, "about 3 min 20 s")],
)
def test_a_duration_has_minutes_where_it_needs_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
