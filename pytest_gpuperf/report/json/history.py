"""Tests in run after run, for other programs: ``gpuperf history --json``.

``history_schema.json`` beside this module is its JSON Schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import Final

from ...model.codec import encode
from ...model.history import Course
from ...model.history import LeftOut
from ...model.history import LevelChange


HISTORY_OF_TESTS_SCHEMA: Final = 1
"""Version of the format."""


def history_document(
    courses: Sequence[Course] | None,
    changes: Sequence[LevelChange] | None,
    left_out: Sequence[LeftOut],
) -> dict[str, Any]:
    """Return *courses*, or *changes*, whichever were asked for, as ``json.dumps`` takes it."""
    return {
        "schema": HISTORY_OF_TESTS_SCHEMA,
        "status": 0,
        "series": None if courses is None else [*map(_course, courses)],
        "changes": None if changes is None else [*map(_change, changes)],
        "left_out": encode(tuple(left_out)),
    }


def _course(course: Course) -> dict[str, Any]:
    return {
        **encode(course.series),
        "runs": course.count,
        "points": encode(course.points),
    }


def _change(change: LevelChange) -> dict[str, Any]:
    return {
        **encode(change.series),
        "before": change.shift.before,
        "after": change.shift.after,
        "last": encode(change.last),
        "first": encode(change.first),
    }
