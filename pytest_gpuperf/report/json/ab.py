"""A comparison of two sides for other programs: ``gpuperf ab --json``.

``ab_schema.json`` next to this module is its JSON Schema.
"""

from __future__ import annotations

from typing import Any, Final

from ...model.ab import AbResult, AbRun, Comparison, ExactChange
from ...model.codec import encode
from ...model.finding import Finding
from ...model.metrics import SPEEDUP, STEP_MS
from ...model.operations import LineChange
from ...model.training import Training
from ..numbers import rounded
from ..remedies import remedy_of


AB_SCHEMA: Final = 1
"""Version of the format."""


def ab_document(found: AbRun) -> dict[str, Any]:
    """Return *found* as ``json.dumps`` takes it."""
    return {
        "schema": AB_SCHEMA,
        "before": found.before,
        "after": found.after,
        "device": found.device,
        "is_worse": found.is_worse,
        "status": int(found.status),
        "notes": list(found.notes),
        "tests": [*map(_test, found.calls), *map(_test, found.uncompared)],
    }


def _test(call: Comparison) -> dict[str, Any]:
    return {
        "test": call.test,
        "verdict": call.outcome.value,
        "why": call.uncompared or _of_time(call),
        "not_checked": {
            STEP_MS.name if name == SPEEDUP.name else name: why
            for name, why in call.unmeasured.items()
        },
        "training": _training(call.training) if call.training else None,
        "time": _time(call.time) if call.time else None,
        "exact": [_exact(change) for change in call.exact],
        "findings": [
            _finding(found)
            for found in call.findings
            if set(found.metrics).intersection(call.worse_metrics)
        ],
        "operations": [*map(_operations, call.operations)],
    }


def _of_time(call: Comparison) -> str:
    """Say that time was not checked, or what it says: verdicts without it are of counts."""
    if call.no_time:
        return f"time was not checked: {call.no_time}"
    return call.time.why if call.time else ""


def _time(time: AbResult) -> dict[str, Any]:
    names = ("ratio", "low", "high", "smallest", "before_ms", "after_ms", "p_value")
    numbers = {name: getattr(time, name) for name in names}
    return {
        "verdict": time.answer.value,
        **{k: None if v is None else rounded(v) for k, v in numbers.items()},
    }


def _training(training: Training) -> dict[str, Any]:
    return {"verdict": training.answer.value, "why": training.text}


def _exact(change: ExactChange) -> dict[str, Any]:
    return {
        "metric": change.metric,
        "verdict": change.turn.value if change.gated else "changed",
        "before": change.before,
        "after": change.after,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    remedy = remedy_of(finding)
    return {
        "kind": finding.kind.value,
        "metrics": list(finding.metrics),
        "op": finding.op,
        "reason": finding.reason,
        "location": encode(finding.location),
        "innermost": encode(finding.innermost),
        "per_step": finding.per_step,
        "before_per_step": finding.stored,
        "fix": remedy.do if remedy else None,
    }


def _operations(change: LineChange) -> dict[str, Any]:
    ops = {op: {"before": old, "after": new} for op, (old, new) in change.ops.items()}
    return {**encode(change), "ops": ops}
