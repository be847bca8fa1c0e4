"""A file of the history: what is written, and what is none."""

from __future__ import annotations

import gzip
import json

import pytest
from history_rows import row

from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.history.document import UnreadableError
from pytest_gpuperf.history.document import dumps_rows
from pytest_gpuperf.history.document import loads
from pytest_gpuperf.history.document import moment_of
from pytest_gpuperf.history.document import seconds_of


GOOD = json.loads(gzip.decompress(dumps_rows([row()])))


def packed(*lines: object) -> bytes:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return gzip.compress("\n".join(texts).encode(errors="surrogatepass"))


def test_a_line_is_json_that_stands_for_itself() -> None:
    lines = gzip.decompress(dumps_rows([row(), row(1)])).decode().splitlines()

    assert len(lines) == 2
    assert json.loads(lines[0]) == {
        "schema": 1,
        "test": "t.py::test_step",
        "hardware": "cuda-nvidia-h200",
        "recorded_at": "2026-02-25T06:13:20Z",
        "commit": "0" * 40,
        "dirty": False,
        "versions": {"torch": "2.13.0"},
        "metrics": {"step_ms": 12, "syncs": 0},
        "outcomes": {"step_ms": "pass", "syncs": "pass"},
    }


def test_what_was_written_is_read() -> None:
    rows = [row(), row(1, commit=None, dirty=None, test="t.py::test_ü[a\nb\u2028]")]

    assert loads(dumps_rows(rows)) == rows


def test_the_same_rows_are_the_same_bytes() -> None:
    assert dumps_rows([row()]) == dumps_rows([row()])


def test_a_line_needs_no_more_than_its_test_hardware_and_moment() -> None:
    needed = {k: GOOD[k] for k in ("schema", "test", "hardware", "recorded_at")}

    (found,) = loads(packed(needed))

    assert (found.commit, found.dirty, found.metrics) == (None, None, {})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has no line"),
        (packed(""), "it has no line"),
        (b"date,ms\n", "it is not a gzip file, or damaged"),
        (dumps_rows([row()])[:-9], "it is truncated"),
        (dumps_rows([row()])[:40], "it is truncated"),
        (dumps_rows([row()])[:-8] + b"12345678", "it is not a gzip file, or damaged"),
        (dumps_rows([row()])[:12] + b"\xff" * 40, "it is damaged"),
        (gzip.compress(b"\xff\xfe"), "it is not UTF-8 text"),
        (packed("{"), "its line 1 is not JSON"),
        (packed("[" * 100_000), "its line 1 is not JSON"),
        (packed([]), "its line 1 is not a JSON object"),
        (packed(GOOD, {}), "its line 2 has the schema None"),
        (packed(GOOD | {"schema": 0}), "its line 1 has the schema 0"),
        (packed(GOOD | {"schema": True}), "its line 1 has the schema True"),
        (
            packed(GOOD | {"schema": 2, "more": 1}),
            "it was written by a newer pytest-gpuperf (schema 2, this one reads 1)",
        ),
        (
            packed({"schema": 1, "test": "a", "hardware": "b", "more": 1}),
            (
                "its line 1 has another shape, which lacks or should not have recorded_at, "
                "more"
            ),
        ),
        (
            packed(GOOD | {"test": 1}),
            "its line 1 has another shape, found '1' under test",
        ),
        (
            packed(GOOD | {"dirty": "no"}),
            "its line 1 has another shape, found 'no' under dirty",
        ),
        (
            packed(GOOD | {"metrics": {"step_ms": "12"}}),
            "its line 1 has another shape, found '12' under metrics",
        ),
        (
            packed(GOOD | {"metrics": [1]}),
            "its line 1 has another shape, found '[1]' under metrics",
        ),
        (
            packed(GOOD | {"metrics": {"step_ms": float("nan")}}),
            "its line 1 has another shape, found 'nan' under metrics",
        ),
        (
            packed(json.dumps(GOOD).replace("12,", "1e999,")),
            "its line 1 has another shape, found 'inf' under metrics",
        ),
        (
            packed(json.dumps(GOOD).replace("12,", "1" + "0" * 400 + ",")),
            "its line 1 has another shape, int too large to convert to float",
        ),
        (
            packed(GOOD | {"recorded_at": "2026-02-30T00:00:00Z"}),
            (
                "its line 1 has another shape, found '2026-02-30T00:00:00Z' under "
                "recorded_at"
            ),
        ),
        (
            packed(GOOD | {"recorded_at": "yesterday"}),
            "its line 1 has another shape, found 'yesterday' under recorded_at",
        ),
    ],
)
def test_what_is_no_history_says_why(content: bytes, why: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        loads(content)

    assert (caught.value.text, caught.value.error_id) == (why, ErrorId.GP523)


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(UnreadableError, match="its line 1 has another shape, 'utf-8'"):
        loads(packed(GOOD | {"test": "\ud800"}))


def test_a_file_that_unpacks_to_far_too_much_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_gpuperf.history.document.MOST_ROW_BYTES", 10)

    with pytest.raises(UnreadableError) as caught:
        loads(dumps_rows([row()]))

    assert str(caught.value) == "it is larger than 10 bytes when it is unpacked [GP523]"


def test_a_moment_is_seconds_and_back() -> None:
    assert seconds_of("2026-02-25T06:13:20Z") == 1_772_000_000
    assert moment_of(1_772_000_000.9) == "2026-02-25T06:13:20Z"
