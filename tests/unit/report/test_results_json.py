"""``results.json``: its text, its schema, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders import a_finding, a_head, a_location, a_test, a_verdict

from pytest_gpuperf.errors import ErrorId, UsageError
from pytest_gpuperf.model.codec import decode, encode_briefly
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.report import json as results_json
from pytest_gpuperf.report.json import dumps, loads
from pytest_gpuperf.report.secrets import secrets_of, shown_headline, shown_verdict


SCHEMA = json.loads(
    Path(results_json.__file__).with_name("results_schema.json").read_text("utf-8")
)

BEGUN = a_head(hardware=None)

VERDICT = a_test(
    a_verdict("step_ms", Outcome.REGRESSED, 12.0345678, 10.0, because="slower"),
    test="t.py::test_a",
    findings=(a_finding(blocked_ms=0.5, location=a_location(3, "train.py", "step")),),
    runs=5,
)

RESULTS = Results(
    head=a_head(
        strict=True,
        missing_baseline="fail",
        commit="1f2e",
        exit_status=1,
        collected=("t.py::test_a", "t.py::test_b", "t.py::test_c"),
        selected=("t.py::test_a", "t.py::test_b"),
        notes=("gpuperf: all tests are slower",),
    ),
    tests={
        "t.py::test_a": Record(
            ending=Ending.FAILED,
            outcome=Outcome.REGRESSED,
            headline="SLOWER",
            verdicts=(encode_briefly(VERDICT),),
        ),
        "t.py::test_b": Record(
            ending=Ending.SKIPPED, headline="no GPU", where="t.py:12"
        ),
    },
)

TEXT = dumps(RESULTS)

EXPECTED = "expected the results.json of a run of pytest --gpuperf"


def changed(**parts: Any) -> str:
    return json.dumps(json.loads(TEXT) | parts)


def test_what_was_written_is_read_again() -> None:
    read = loads(TEXT, "x.json")

    assert read.head == RESULTS.head
    assert read.tests.keys() == RESULTS.tests.keys()
    assert dumps(read) == TEXT


def test_a_verdict_comes_back_but_for_digits_that_nobody_reads() -> None:
    (call,) = loads(TEXT, "x.json").tests["t.py::test_a"].verdicts
    back = decode(TestVerdict, call)

    assert back.verdicts[0].now == 12.0346
    assert (back.findings, back.runs) == (VERDICT.findings, 5)


@pytest.mark.parametrize("results", [RESULTS, Results(head=BEGUN)])
def test_the_schema_that_is_published_holds(results: Results) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    jsonschema.validate(json.loads(dumps(results)), SCHEMA)


@pytest.mark.parametrize(
    "parts",
    [
        {"schema": 2},
        {"exit_status": "0"},
        {"surplus": 1},
        {"tests": {"t": {"ending": "lost"}}},
        {"tests": {"t": {"ending": "passed", "outcome": "fine"}}},
    ],
)
def test_the_schema_refuses_another_shape(parts: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(changed(**parts)), SCHEMA)


def test_a_number_that_is_none_is_not_written() -> None:
    broken = Record(ending=Ending.PASSED, verdicts=({"now": float("nan")},))

    with pytest.raises(UsageError) as caught:
        dumps(Results(head=BEGUN, tests={"t": broken}))

    assert caught.value.error_id is ErrorId.GP513


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[" * 200_000, "the file is nested too deeply"),
        (changed(schema=True), "its schema is True"),
        (changed(schema=0), "its schema is 0"),
        (changed(more=1), "it has another shape, Head has no field more"),
        (changed(strict=1), "it has another shape, expected bool, found 1"),
        (
            changed(hardware={"kind": "tpu", "name": ""}),
            "it has another shape, 'tpu' is not a valid DeviceKind",
        ),
        (changed(tests={"t": {}}), "what it says of t has another shape"),
    ],
)
def test_any_other_text_is_refused_in_one_sentence(text: str, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        loads(text, "x.json")

    assert str(caught.value) == f"x.json: {found}; {EXPECTED} [GP512]"


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("train.py", "train.py"),
        ("/home/eve/project/train.py", "train.py"),
        ("/home/eve/.venv/lib/python3.11/site-packages/nn/a.py", "nn/a.py"),
    ],
)
def test_no_path_of_this_machine_leaves_it(file: str, shown: str) -> None:
    location = Location(file=file, line=3, function="step")
    finding = a_finding(op=None, innermost=location, location=None)
    verdict = TestVerdict(
        test="t", verdicts=(), findings=(finding,), snapshot=file, trace=file
    )

    found = shown_verdict(verdict)

    assert (found.findings[0].innermost, found.findings[0].location) == (
        Location(file=shown, line=3, function="step"),
        None,
    )
    assert (found.snapshot, found.trace) == (shown, shown)


def test_a_headline_names_the_project_and_no_user() -> None:
    text = "no /home/eve/project/a.bin, no /home/eve/b.bin"

    shown = shown_headline(text, Path("/home/eve/project"), Path("/home/eve"))

    assert shown == "no a.bin, no ~/b.bin"


def test_the_reason_of_a_failure_masks_what_the_environment_calls_a_secret() -> None:
    environ = {
        "GH_TOKEN": "ghp_0123",
        "api_key": "key-4567-key",
        "TOKENIZERS_PARALLELISM": "false",
        "USER": "somebody",
    }

    secrets = secrets_of(environ)

    text = "ghp_0123 and key-4567-key, false for somebody"
    assert shown_headline(text, Path("/p"), Path("/home/eve"), secrets) == (
        "*** and ***, false for somebody"
    )
