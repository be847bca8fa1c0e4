"""Measured calls, one by one, in the form that other programs take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..model.measurement import Samples
from ..model.metrics import STEP_MS
from ..model.verdict import Outcome, worst_of
from .numbers import rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCall:
    """One call of ``gpuperf(step)`` in *test*.

    ``key`` is the node id, and ``#`` and a name where a test has several calls.
    ``values`` are what was judged, by metric name and in the metric's unit, ``runs``
    what each run read of its times, oldest first.
    """

    test: str
    key: str
    outcome: Outcome
    values: Mapping[str, float]
    runs: tuple[Samples, ...] = ()

    @property
    def suffix(self) -> str:
        """What distinguishes it from other calls of its test: ``#`` and a name."""
        return self.key.removeprefix(self.test)

    @property
    def name(self) -> str:
        """The key without file and class."""
        inside = self.key.partition("::")[2]
        function, bracket, rest = inside.partition("[")
        return function.rpartition("::")[2] + bracket + rest

    @property
    def parameters(self) -> str | None:
        """What pytest writes in brackets behind the function."""
        inside = self.test.partition("::")[2]
        _, bracket, rest = inside.partition("[")
        return rest.removesuffix("]") if bracket else None

    @property
    def step_ms(self) -> tuple[float, ...]:
        """Times of a step in all runs."""
        return tuple(ms for run in self.runs for ms in run.get(STEP_MS.name, ()))


def measured_calls(
    verdicts: Mapping[str, Sequence[Mapping[str, Any]]],
    samples: Mapping[str, tuple[Samples, ...]],
) -> Iterator[MeasuredCall]:
    """Yield every call that has a number: *verdicts* by node id, as their JSON has them.

    Several verdicts on one metric, by budget and baseline, read the same number.
    """
    for test, calls in verdicts.items():
        for call in calls:
            made = MeasuredCall(
                test=test,
                key=call["test"],
                outcome=outcome_of(call),
                values=_values(call),
                runs=samples.get(call["test"], ()),
            )
            if made.values or made.step_ms:
                yield made


def outcome_of(call: Mapping[str, Any]) -> Outcome:
    """Return the worst verdict of a *call*, as its JSON has it."""
    if call.get("sides") is not None and not call["verdicts"]:
        return Outcome.PASS  # two steps were compared, and no budget was set
    found = worst_of(Outcome(judged["outcome"]) for judged in call["verdicts"])
    return found or Outcome.NOT_CHECKED


def _values(call: Mapping[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    for judged in call["verdicts"]:
        now = judged.get("now")
        if now is not None:
            # Budget and baseline judge the same number, so the first one is enough.
            values.setdefault(judged["metric"], now)
    return values


# Numbers of a test for its place in a JUnit file, each under a name with its unit.

METRIC_PREFIX: Final = "gpuperf."

OUTCOME_PROPERTY: Final = f"{METRIC_PREFIX}outcome"
"""The worst outcome of a measured test; no other test has one."""

WARNED_PROPERTY: Final = f"{METRIC_PREFIX}warned"
"""The text of a failure that is a warning for now."""


def properties_of(test: str, verdicts: Sequence[str]) -> list[tuple[str, object]]:
    """Return name and value of all that *verdicts*, JSON texts, say of *test*.

    The outcome is the worst of them. ``#`` and a name tell several calls apart.
    """
    read = [json.loads(verdict) for verdict in verdicts]
    worst = worst_of(map(outcome_of, read))
    if worst is None:
        return []
    numbers = _numbers(measured_calls({test: read}, {}))
    return [(OUTCOME_PROPERTY, worst.value), *numbers]


def _numbers(calls: Iterable[MeasuredCall]) -> Iterator[tuple[str, object]]:
    for call in calls:
        for metric, value in call.values.items():
            yield f"{METRIC_PREFIX}{metric}{_printable(call.suffix)}", rounded(value)


def _printable(text: str) -> str:
    """Escape what XML has no character for: pytest writes names of properties as they are."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
