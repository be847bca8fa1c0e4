"""``samples.json``: its text, what is left out, and what is refused."""

from __future__ import annotations

import json

import pytest

from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.report.json.samples import dumps
from pytest_gpuperf.report.json.samples import loads


SAMPLES = {
    "t.py::test_a": ({"step_ms": (10.0, 10.12345), "latency_ms": (12.0,)}, {}),
    "t.py::test_b[<|\n\U0001f600]#two": ({"step_ms": (0.00123456,)},),
    "t.py::test_pretend": ({}, {}),
}

TEXT = """\
{
  "schema": 1,
  "tests": {
    "t.py::test_a": [{"step_ms": [10.0, 10.12], "latency_ms": [12.0]}, {}],
    "t.py::test_b[<|\\n\\ud83d\\ude00]#two": [{"step_ms": [0.001235]}]
  }
}
"""

EXPECTED = "expected the samples.json of a run of pytest --gpuperf"


def test_a_call_has_a_line_and_one_without_samples_has_none() -> None:
    assert dumps(SAMPLES) == TEXT
    assert dumps({}) == '{\n  "schema": 1,\n  "tests": {}\n}\n'


def test_what_was_written_is_read_again_run_by_run() -> None:
    assert loads(TEXT, "x.json") == {
        "t.py::test_a": ({"step_ms": (10.0, 10.12), "latency_ms": (12.0,)}, {}),
        "t.py::test_b[<|\n\U0001f600]#two": ({"step_ms": (0.001235,)},),
    }


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_not_written(number: float) -> None:
    with pytest.raises(UsageError) as caught:
        dumps({"t": ({"step_ms": (number,)},)})

    assert caught.value.error_id is ErrorId.GP513


def of_test(runs: object) -> str:
    return json.dumps({"schema": 1, "tests": {"t": runs}})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "the file is empty"),
        (TEXT[:40], "the file is not JSON at line 4"),
        ("7", "the file is not a JSON object"),
        (
            '{"schema": 1, "tests": {"t": [{"step_ms": [NaN]}]}}',
            "the file cannot be read (it has NaN, which is not a measured value)",
        ),
        ("{}", "its schema is None"),
        ('{"schema": 1}', "it has no object of tests"),
        *(
            (of_test(runs), "what it says of t has another shape")
            for runs in (
                7,
                {"step_ms": [1.0]},
                [[1.0]],
                [{"step_ms": 1.0}],
                [{"step_ms": ["1.0"]}],
                [{"step_ms": [True]}],
                [{"step_ms": [-1.0]}],
                [{"step_ms": [10**400]}],
            )
        ),
        (
            '{"schema": 1, "tests": {"t": [{"step_ms": [1e999]}]}}',
            "what it says of t has another shape",
        ),
    ],
)
def test_any_other_text_is_refused_in_one_sentence(text: str, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        loads(text, "x.json")

    assert str(caught.value) == f"x.json: {found}; {EXPECTED} [GP512]"


def test_a_newer_schema_asks_for_an_upgrade() -> None:
    with pytest.raises(UsageError) as caught:
        loads('{"schema": 2}', "x.json")

    assert caught.value.error_id is ErrorId.GP503
