"""A JSON text that this package wrote, read again or refused in a sentence."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from ...errors import ErrorId, UsageError
from ...model.retired import with_names_of_today
from ...visible import visible


def read_object(
    text: str, source: str, *, schema: int, expected: str
) -> dict[str, Any]:
    """Read an object of the version *schema*; errors name *source* and *expected*.

    Raises ``UsageError`` if the text is empty, no JSON, contains NaN or infinity, or is
    of another schema.
    """
    raw = _parsed(text, source, expected)
    version = raw.get("schema")
    # Before the shape: a newer format would only look like a broken file.
    if type(version) is int and version > schema:
        msg = (
            f"{source}: written by a newer pytest-gpuperf "
            f"(schema {version}, this one reads {schema}): upgrade it"
        )
        raise UsageError(msg, ErrorId.GP503)
    if type(version) is not int or version < schema:
        refuse(source, f"its schema is {version!r}", expected)
    return raw


def _parsed(text: str, source: str, expected: str) -> dict[str, Any]:
    if not text.strip():
        refuse(source, "the file is empty", expected)
    try:
        # Python's parser takes NaN and Infinity, which are no JSON.
        raw = json.loads(with_names_of_today(text), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        refuse(source, f"the file is not JSON at line {error.lineno}", expected)
    except RecursionError:
        refuse(source, "the file is nested too deeply", expected)
    except ValueError as error:
        refuse(source, f"the file cannot be read ({error})", expected)
    if not isinstance(raw, dict):
        refuse(source, "the file is not a JSON object", expected)
    return raw


def _refuse_constant(name: str) -> NoReturn:
    msg = f"it has {name}, which is not a measured value"
    raise ValueError(msg)


def refuse(source: str, found: str, expected: str) -> NoReturn:
    """Raise ``UsageError`` that says what was found in *source*."""
    msg = f"{visible(source)}: {visible(found)}; {expected}"
    raise UsageError(msg, ErrorId.GP512)
