"""The key of a call: what tells the calls of one test apart, in baselines and reports."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence
from typing import NoReturn

from .errors import StepError


def call_key(
    nodeid: str, name: str | None, taken: Sequence[str], comparisons: Collection[str]
) -> str:
    """Return the key of a measured call: the node id, and its name or number if needed.

    Raises ``StepError`` where a call has that *name* already.
    """
    key = f"{nodeid}#{name}" if name else nodeid
    if key not in taken and key not in comparisons:
        return key
    if name:
        _refuse_name(f"gpuperf(step, name={name!r})")
    return f"{nodeid}#{len(taken) + 1}"


def comparison_key(nodeid: str, name: str | None, taken: Collection[str]) -> str:
    """Return the key of a comparison: ``#compare``, ``#compare2``, or its name.

    Raises ``StepError`` where a call has that *name* already.
    """
    if name is None:
        numbers = ("", *map(str, range(2, len(taken) + 3)))
        keys = (f"{nodeid}#compare{number}" for number in numbers)
        return next(key for key in keys if key not in taken)
    if f"{nodeid}#{name}" in taken:
        _refuse_name(f"gpuperf.compare(before, after, name={name!r})")
    return f"{nodeid}#{name}"


def _refuse_name(call: str) -> NoReturn:
    msg = f"{call}: this test has a call of that name already"
    raise StepError(msg)
