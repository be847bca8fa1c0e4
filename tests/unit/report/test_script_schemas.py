"""What ``gpuperf audit --json`` and ``gpuperf memory --json`` print is what their schemas say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_gpuperf.report import json as audit


GOLDEN = Path(__file__).parent / "golden"


def read(command: str) -> tuple[Any, Any]:
    """Return what a command printed, and the schema of it."""
    schema = Path(audit.__file__).with_name(f"{command}_schema.json")
    printed = (GOLDEN / f"{command}.json").read_text("utf-8")
    return json.loads(printed), json.loads(schema.read_text("utf-8"))


@pytest.mark.parametrize("command", ["audit", "memory"])
def test_what_is_printed_has_the_shape_of_its_schema(command: str) -> None:
    printed, schema = read(command)

    jsonschema.validators.validator_for(schema).check_schema(schema)
    jsonschema.validate(printed, schema)
    for change in ({"more": 1}, {"findings": [{"op": 1}]}, {"notes": [1]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**printed, **change}, schema)
