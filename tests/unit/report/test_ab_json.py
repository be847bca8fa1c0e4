"""``gpuperf ab --json`` is what its schema says."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from golden_commands import COMPARED

from pytest_gpuperf.report import json as ab
from pytest_gpuperf.report.json import ab_document


SCHEMA = json.loads(Path(ab.__file__).with_name("ab_schema.json").read_text("utf-8"))


def check(document: Any) -> None:
    kind = jsonschema.validators.validator_for(SCHEMA)
    kind.check_schema(SCHEMA)
    kind(SCHEMA).validate(document)


def test_a_comparison_has_the_shape_of_its_schema() -> None:
    document = ab_document(COMPARED)

    check(json.loads(json.dumps(document, allow_nan=False)))
    assert document["is_worse"] is True
    assert {test["verdict"] for test in document["tests"]} >= {"worse", "same"}


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"before": None}, {"more": 1}, {"tests": [{"test": "t"}]}]
)
def test_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check({**deepcopy(ab_document(COMPARED)), **change})
