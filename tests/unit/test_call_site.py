from __future__ import annotations

import sys

import pytest

from pytest_gpuperf.devices.call_site import blamed
from pytest_gpuperf.devices.sync_marker import location_in
from pytest_gpuperf.devices.sync_marker import marker_of


torch = pytest.importorskip("torch")


def test_the_innermost_frame_outside_of_foreign_code_is_blamed() -> None:
    location = blamed([sys._getframe()])

    assert location is not None
    assert (location.file, location.function) == (
        __file__,
        "test_the_innermost_frame_outside_of_foreign_code_is_blamed",
    )


def test_nobody_is_blamed_without_a_frame_of_the_user() -> None:
    assert blamed([]) is None


def test_a_marker_without_a_location_has_none() -> None:
    marker = marker_of(None)

    assert (marker, location_in(marker)) == ("gpuperf.sync|", None)


def test_a_marker_of_plain_names_is_readable() -> None:
    location = blamed([sys._getframe()])
    assert location is not None

    function = "test_a_marker_of_plain_names_is_readable"
    assert marker_of(location).endswith(
        f"/test_call_site.py|{location.line}|{function}"
    )
    assert location_in(marker_of(location)) == location
