"""Judge calls: by their author's budgets and tolerances, by their baselines, together."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from .judge.budget import resolve
from .judge.climate import Climate
from .judge.climate import Sentinels
from .judge.climate import sentinel_shifts
from .judge.prior import Prior
from .judge.prior import fit_prior
from .judge.stored import log_shift
from .judge.stored import log_variance
from .judge.suite import settle_suite
from .judge.suite import suite_shift
from .judge.suite import suite_verdict
from .judge.verdict import ALONE
from .judge.verdict import judge
from .model.baseline import Entry
from .model.budget import Tolerance
from .model.environment import DeviceKind
from .model.measurement import Measurement
from .model.metric import SPEEDUP
from .model.metric import STEP_MS
from .model.run import Call
from .model.suite import SuiteVerdict
from .model.verdict import Outcome
from .model.verdict import TestVerdict


WHOLE: Final = Tolerance()
"""Of a project that names none."""


def judge_calls(
    calls: Sequence[Call],
    entry: Entry | None,
    climate: Climate = ALONE,
    project: Tolerance = WHOLE,
) -> TestVerdict:
    """Judge one call of a test by what each run measured of it, oldest first.

    The *project*'s tolerance holds where no mark names one.
    """
    last = calls[-1]
    runs = [call.measurement for call in calls]
    budget = resolve(last.budgets, last.measurement.environment.hardware)
    budget = budget.without(str(SPEEDUP.budget))  # of a comparison, not of a step
    tolerance = merged((*last.tolerances, project))
    return judge(last.measurement.test, runs, budget, tolerance, entry, climate)


def climate_of(
    first: Mapping[str, Measurement],
    entries: Mapping[str, Entry],
    precision: float | None = None,
) -> Climate:
    """Return what the *first* runs of all calls and all *entries* say about each.

    The scatter comes from every stored test, also from those that were not selected.
    """
    kinds = {run.environment.hardware.kind for run in first.values()}
    if not kinds:
        return ALONE
    shifts = _shifts(first, entries)
    clean = [shift for key, shift in shifts.items() if not first[key].dirty]
    return Climate(
        prior=prior_of(entries.values(), kinds.pop()),
        shift=suite_shift(clean),
        tests=max(1, len(shifts)),
        precision=precision,
    )


def prior_of(entries: Iterable[Entry], kind: DeviceKind) -> Prior | None:
    """Return what the stored runs of all tests say about the scatter of one."""
    known = (log_variance(STEP_MS, entry.runs, kind) for entry in entries)
    found = [variance for variance in known if variance is not None]
    return fit_prior([variance for variance, _ in found], [nu for _, nu in found])


def suite_of(
    first: Mapping[str, Measurement], entries: Mapping[str, Entry]
) -> SuiteVerdict | None:
    """Say what all tests did together; ``None`` where they did nothing."""
    shifts = _shifts(first, entries)
    witnesses = [Sentinels.of([first[key]], entries[key].runs) for key in shifts]
    return suite_verdict(
        list(shifts.values()),
        [
            shift
            for witness in witnesses
            if witness.stored and witness.fresh != (None,)
            for shift in sentinel_shifts(1, witness)
        ],
        tolerance=STEP_MS.tolerance,
    )


def _shifts(
    first: Mapping[str, Measurement], entries: Mapping[str, Entry]
) -> dict[str, float]:
    found = {
        key: log_shift(STEP_MS, run, entries[key].runs)
        for key, run in first.items()
        if key in entries
    }
    return {key: shift for key, shift in found.items() if shift is not None}


def settle_together(
    verdicts: Mapping[str, Mapping[str, TestVerdict]],
) -> dict[str, dict[str, TestVerdict]]:
    """Share blame out over the calls of all tests, by test and by call."""
    together = iter(
        settle_suite([v for calls in verdicts.values() for v in calls.values()])
    )
    return {
        test: {key: next(together) for key in calls} for test, calls in verdicts.items()
    }


def merged(layers: Sequence[Tolerance]) -> Tolerance:
    """Return one tolerance; the first layer that names a metric decides it."""
    ratios: dict[str, float] = {}
    floors: dict[str, float] = {}
    for layer in reversed(layers):
        floors = {n: f for n, f in floors.items() if n not in layer.ratios}
        floors.update(layer.floors)
        ratios.update(layer.ratios)
    detects = [layer.detect for layer in layers if layer.detect is not None]
    return Tolerance(
        ratios=ratios, floors=floors, detect=detects[0] if detects else None
    )


def accepted(verdict: TestVerdict, because: str) -> TestVerdict:
    """Turn what had no baseline into a pass: a refresh has just taken it over."""
    return replace(
        verdict,
        verdicts=tuple(
            replace(v, outcome=Outcome.PASS, because=because)
            if v.outcome is Outcome.NO_BASELINE
            else v
            for v in verdict.verdicts
        ),
    )
