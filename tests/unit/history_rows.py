"""Rows of a history, and folders full of them, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

from pytest_gpuperf.history.document import dumps_rows
from pytest_gpuperf.history.document import moment_of
from pytest_gpuperf.history.place import Folder
from pytest_gpuperf.model.history import CallRow


START = 1_772_000_000  # 2026-02-25T06:13:20Z
DAY = 86_400

STEP = "t.py::test_step"
H200 = "cuda-nvidia-h200"


def row(number: int = 0, value: float = 12.0, **changed: object) -> CallRow:
    """What a test showed on day *number*."""
    fields: dict[str, object] = {
        "test": STEP,
        "hardware": H200,
        "recorded_at": moment_of(START + number * DAY),
        "commit": f"{number:07x}".ljust(40, "0"),
        "dirty": False,
        "versions": {"torch": "2.13.0"},
        "metrics": {"step_ms": value, "syncs": 0},
        "outcomes": {"step_ms": "pass", "syncs": "pass"},
    }
    return CallRow(**(fields | changed))  # type: ignore[arg-type]


def keep(folder: Path, name: str, *rows: CallRow) -> None:
    Folder(folder).write(name, dumps_rows(rows))


def keep_course(
    folder: Path, values: Sequence[float], **changed: Mapping[str, object]
) -> None:
    """Keep a run a day, whose step took these times."""
    for number, value in enumerate(values):
        keep(folder, f"{H200}/{number:04}.jsonl.gz", row(number, value, **changed))
