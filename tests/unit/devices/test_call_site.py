from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_gpuperf.devices.allow_sync import innermost_in, location_in, marker_of
from pytest_gpuperf.devices.source_lines import blamed, blamed_below
from pytest_gpuperf.model.finding import Location


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


def test_the_project_is_what_is_not_installed_below_its_root(tmp_path: Path) -> None:
    def frame_in(path: str) -> FrameType:
        names: dict[str, Any] = {}
        source = "import sys\ndef f():\n    return sys._getframe()"
        exec(compile(source, str(tmp_path / path), "exec"), names)  # noqa: S102
        frame: FrameType = names["f"]()
        return frame

    stack = [
        frame_in("venv/lib/python3.12/site-packages/library/mask.py"),
        frame_in("/elsewhere/helpers.py"),
        frame_in("train.py"),
    ]

    found = blamed_below(str(tmp_path), stack)

    assert found == Location(file=str(tmp_path / "train.py"), line=3, function="f")
    assert blamed_below("", stack) is None
    assert blamed_below(str(tmp_path / "src"), stack) is None


def test_a_marker_without_a_location_has_none() -> None:
    marker = marker_of(None)

    assert (marker, location_in(marker)) == ("gpuperf.sync|", None)


def test_a_marker_carries_the_line_of_a_library_next_to_that_of_the_project() -> None:
    project = Location(file="/src/train.py", line=12, function="step")
    library = Location(file="/lib/mask|ing.py", line=307, function="expand")

    marker = marker_of(project, library)

    assert (location_in(marker), innermost_in(marker)) == (project, library)
    assert innermost_in(marker_of(project)) is None


def test_a_marker_of_plain_names_is_readable() -> None:
    location = blamed([sys._getframe()])
    assert location is not None

    function = "test_a_marker_of_plain_names_is_readable"
    assert marker_of(location).endswith(
        f"/test_call_site.py|{location.line}|{function}"
    )
    assert location_in(marker_of(location)) == location
