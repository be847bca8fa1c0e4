"""What was measured, call by call, as formats of other programs take it."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..model.environment import DeviceKind
from ..model.measurement import Distribution
from ..model.measurement import Samples
from ..model.measurement import location
from ..model.metric import STEP_MS
from ..model.verdict import Outcome
from ..model.verdict import worst_of
from .numbers import metric_named


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
        """What tells it from other calls of its test: nothing, or ``#`` and a name."""
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

    def spread(self, metric: str, kind: DeviceKind) -> tuple[float, float] | None:
        """Return the least and the most that a run says of *metric* and of its value.

        A run says where its samples lie on a device of this *kind*. ``None`` where there
        are no two runs with samples: nothing can be said then.
        """
        samples = (run[metric] for run in self.runs if run.get(metric))
        known = metric_named(metric)
        said = [location(known, Distribution.of(read), kind) for read in samples]
        if len(said) < 2 or metric not in self.values:  # noqa: PLR2004 - two runs
            return None
        said.append(self.values[metric])
        return min(said), max(said)


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
    return found or Outcome.NOT_JUDGED


def _values(call: Mapping[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    for judged in call["verdicts"]:
        now = judged.get("now")
        if now is not None:
            values.setdefault(judged["metric"], now)
    return values
