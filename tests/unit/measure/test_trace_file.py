"""A trace that a viewer opens: whole events, sound JSON, nothing of this machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.devices.base import TraceEvent
from pytest_gpuperf.measure import profile as trace_file
from pytest_gpuperf.measure.profile import portable_from, write_trace


NAMED: TraceEvent = {"ph": "M", "name": "process_name", "args": {"name": "python"}}


def span(name: str, ts: object = 1.0, dur: object = 2.0) -> TraceEvent:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "tid": 1}


def written(tmp_path: Path, events: Sequence[TraceEvent]) -> dict[str, Any]:
    path = tmp_path / "traces" / "a.json.gz"
    write_trace(path, "t.py::a", events, portable_from(tmp_path))
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def test_events_are_kept_in_order_of_time_behind_what_names_them(
    tmp_path: Path,
) -> None:
    document = written(tmp_path, [span("late", ts=9), NAMED, span("early")])

    assert document == {
        "displayTimeUnit": "ms",
        "otherData": {"test": "t.py::a", "events_left_out": 0},
        "traceEvents": [NAMED, span("early"), span("late", ts=9)],
    }


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"ph": 1, "ts": 1.0},
        {"ph": "X", "ts": 1.0},
        span("x", ts="soon"),
        span("x", ts=float("nan")),
        span("x", dur=float("inf")),
        {"ph": "i"},
    ],
)
def test_an_event_that_a_viewer_cannot_place_is_left_out(
    tmp_path: Path, broken: TraceEvent
) -> None:
    document = written(tmp_path, [broken, span("good")])

    assert document["traceEvents"] == [span("good")]


def test_numbers_that_json_does_not_know_become_null(tmp_path: Path) -> None:
    event = {**span("Memcpy"), "args": {"bandwidth": float("inf"), "grid": (1, 2)}}

    document = written(tmp_path, [event])

    assert document["traceEvents"][0]["args"] == {"bandwidth": None, "grid": [1, 2]}


def test_paths_are_made_portable_wherever_they_stand(tmp_path: Path) -> None:
    event = {**span(f"{tmp_path}/a.py(1): f"), "args": {"in": [f"{tmp_path}/b.py"]}}

    document = written(tmp_path, [event])

    assert document["traceEvents"] == [{**span("a.py(1): f"), "args": {"in": ["b.py"]}}]


def test_a_long_trace_is_cut_behind_its_first_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_file, "MOST_TRACE_EVENTS", 2)

    document = written(tmp_path, [*(span(str(n), ts=n) for n in range(5)), NAMED])

    assert [event["name"] for event in document["traceEvents"]] == [
        "process_name",
        "0",
        "1",
    ]
    assert document["otherData"]["events_left_out"] == 3


def test_the_same_events_make_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "a.json.gz"
    written(tmp_path, [span("a")])
    first = path.read_bytes()

    written(tmp_path, [span("a")])

    assert path.read_bytes() == first
