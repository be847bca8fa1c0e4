"""Verdicts as JSON text, the form in which they cross from process to process."""

from __future__ import annotations

import json

from ..errors import RunError
from ..model.codec import decode
from ..model.codec import encode
from ..model.verdict import TestVerdict


def to_json(verdict: TestVerdict) -> str:
    """*verdict* as one line of JSON."""
    return json.dumps(encode(verdict))


def from_json(text: str) -> TestVerdict:
    """Read the verdict that ``to_json`` wrote; raises ``RunError`` for any other text."""
    try:
        return decode(TestVerdict, json.loads(text))
    except (TypeError, ValueError, KeyError) as error:
        msg = (
            f"a process reported a verdict that cannot be read ({error.args[0]}); expected "
            "the JSON of this version: install the same pytest-gpuperf for every process"
        )
        raise RunError(msg) from error
