"""Judge one call of a test: its author's budgets and tolerances, and its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .judge.budget import resolve
from .judge.verdict import judge
from .model.baseline import Entry
from .model.budget import Tolerance
from .model.run import Call
from .model.verdict import Outcome
from .model.verdict import TestVerdict


def judge_calls(calls: Sequence[Call], entry: Entry | None) -> TestVerdict:
    """Judge one call of a test by what each run measured of it, oldest first."""
    last = calls[-1]
    runs = [call.measurement for call in calls]
    budget = resolve(last.budgets, last.measurement.environment.hardware)
    return judge(last.measurement.test, runs, budget, _merged(last.tolerances), entry)


def _merged(layers: Sequence[Tolerance]) -> Tolerance:
    """Return one tolerance; the first layer that names a metric decides it."""
    ratios: dict[str, float] = {}
    for layer in reversed(layers):
        ratios.update(layer.ratios)
    detects = [layer.detect for layer in layers if layer.detect is not None]
    return Tolerance(ratios=ratios, detect=detects[0] if detects else None)


def accepted(verdict: TestVerdict) -> TestVerdict:
    """Turn what had no baseline into a pass: it has just been recorded."""
    return replace(
        verdict,
        verdicts=tuple(
            replace(v, outcome=Outcome.PASS, because="accepted as the new baseline")
            if v.outcome is Outcome.NO_BASELINE
            else v
            for v in verdict.verdicts
        ),
    )
