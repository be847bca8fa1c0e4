"""Numbers of a test for its place in a JUnit file, each under a name with its unit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final

from ..model.verdict import worst_of
from .measured_calls import MeasuredCall
from .measured_calls import measured_calls
from .measured_calls import outcome_of
from .numbers import rounded


PREFIX: Final = "gpuperf."


def properties_of(test: str, verdicts: Sequence[str]) -> list[tuple[str, object]]:
    """Return name and value of all that *verdicts*, JSON texts, say of *test*.

    The outcome is the worst of them. ``#`` and a name tell several calls apart.
    """
    read = [json.loads(verdict) for verdict in verdicts]
    worst = worst_of(map(outcome_of, read))
    if worst is None:
        return []
    numbers = _numbers(measured_calls({test: read}, {}))
    return [(f"{PREFIX}outcome", worst.value), *numbers]


def _numbers(calls: Iterable[MeasuredCall]) -> Iterator[tuple[str, object]]:
    for call in calls:
        for metric, value in call.values.items():
            yield f"{PREFIX}{metric}{_printable(call.suffix)}", rounded(value)


def _printable(text: str) -> str:
    """Escape what XML has no character for: pytest writes names of properties as they are."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
