"""Bencher Metric Format: every metric of a call as a measure of one benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from ...model.environment import DeviceKind
from ...model.metrics import STEP_MS
from ..numbers import rounded
from .measured_calls import MeasuredCall


LATENCY_MEASURE: Final = "latency"
"""Bencher's built-in measure for times, in nanoseconds."""

NS_PER_MS: Final = 1e6

LONGEST_NAME: Final = 1024
"""Characters that Bencher takes of the name of a benchmark."""


def dumps(calls: Sequence[MeasuredCall], kind: DeviceKind) -> str:
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
