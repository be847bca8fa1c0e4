"""Formats of services that plot benchmarks over commits.

Bencher Metric Format: every metric of a call is a measure of one benchmark.
``customSmallerIsBetter`` of github-action-benchmark: a row a call and metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from typing import Final

from ...model.environment import DeviceKind
from ...model.metric import Direction
from ...model.metrics import STEP_MS
from ..numbers import metric_named
from ..numbers import rounded
from .measured_calls import MeasuredCall


LATENCY_MEASURE: Final = "latency"
"""Bencher's built-in measure for times, in nanoseconds."""

NS_PER_MS: Final = 1e6

LONGEST_NAME: Final = 1024
"""Characters that Bencher takes of the name of a benchmark."""


def bencher_json(calls: Sequence[MeasuredCall], kind: DeviceKind) -> str:
    """Write what *calls* measured on a device of this *kind*."""
    document = {_name(call.key): _measures(call, kind) for call in calls if call.values}
    return json.dumps(document, indent=2) + "\n"


def _name(key: str) -> str:
    """Cut a name that is too long, and keep it unique by a hash."""
    if len(key) <= LONGEST_NAME:
        return key
    mark = f"...{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
    return key[: LONGEST_NAME - len(mark)] + mark


def _measures(call: MeasuredCall, kind: DeviceKind) -> dict[str, dict[str, float]]:
    return {
        LATENCY_MEASURE
        if metric == STEP_MS.name
        else metric.replace("_", "-"): _measure(call, metric, kind)
        for metric in call.values
    }


def _measure(call: MeasuredCall, metric: str, kind: DeviceKind) -> dict[str, float]:
    # Bencher's latency is in nanoseconds.
    scale = NS_PER_MS if metric == STEP_MS.name else 1
    measure = {"value": rounded(call.values[metric] * scale)}
    spread = call.spread(metric, kind)
    if spread is not None:
        measure["lower_value"] = rounded(spread[0] * scale)
        measure["upper_value"] = rounded(spread[1] * scale)
    return measure


def smaller_is_better_json(calls: Sequence[MeasuredCall], kind: DeviceKind) -> str:
    """Write what *calls* measured on a device of this *kind*, but for speedups."""
    rows = [row for call in calls for row in _rows(call, kind)]
    return json.dumps(rows, indent=2) + "\n"


def _rows(call: MeasuredCall, kind: DeviceKind) -> Iterator[dict[str, Any]]:
    for name, value in call.values.items():
        metric = metric_named(name)
        if metric.direction is Direction.LOWER:
            yield {
                "name": f"{call.key} {name}",
                "unit": metric.unit.value,
                "value": rounded(value),
                **_range(call, name, kind),
                "extra": call.outcome.value,
            }


def _range(call: MeasuredCall, metric: str, kind: DeviceKind) -> dict[str, str]:
    spread = call.spread(metric, kind)
    if spread is None:
        return {}
    low, high = spread
    return {"range": f"{rounded(low)} to {rounded(high)}"}
