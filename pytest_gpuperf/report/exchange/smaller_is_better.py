"""``customSmallerIsBetter`` of github-action-benchmark: a row a call and metric."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from ...model.environment import DeviceKind
from ...model.metrics import Direction
from ..numbers import metric_named
from ..numbers import rounded
from .measured_calls import MeasuredCall


def dumps(calls: Sequence[MeasuredCall], kind: DeviceKind) -> str:
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
