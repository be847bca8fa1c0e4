"""What the stored runs of tests let the judge see, known before it has to judge."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace

from .baselines.refresh import new_entry
from .judge.acuity import ROUND_TOLERANCES
from .judge.acuity import acuity
from .judge.acuity import suite_acuity
from .judge.allowance import floored
from .judge.allowance import noticed
from .judge.allowance import tolerated
from .judge.climate import Climate
from .judge.effort import STORED_RUNS
from .judge.effort import deciding_runs
from .judge.effort import effort
from .judge.reference import Limits
from .judge.reference import Reference
from .judge.stored import reference_of
from .judging import WHOLE
from .judging import merged
from .judging import prior_of
from .model.acuity import Acuity
from .model.acuity import SuiteAcuity
from .model.baseline import FULL_RUNS
from .model.baseline import Baselines
from .model.baseline import Entry
from .model.budget import Tolerance
from .model.effort import Effort
from .model.environment import DeviceKind
from .model.measurement import Measurement
from .model.metric import STEP_MS


Layers = Sequence[Tolerance]
"""What the marks of a test say, the first that names a metric decides."""


def acuity_of(
    tests: Mapping[str, Layers],
    entries: Mapping[str, Entry],
    kind: DeviceKind,
    project: Tolerance = WHOLE,
    precision: float | None = None,
) -> SuiteAcuity | None:
    """Say what can be seen of *tests*, judged together with all of *entries*.

    ``None`` where none of them has a stored time.
    """
    references = references_of(entries, kind)
    known = {test: references[test] for test in tests if test in references}
    return _suite_acuity(
        known, tests, Climate(tests=len(references), precision=precision), project
    )


def acuity_of_step(
    runs: Sequence[Measurement],
    project: Tolerance = WHOLE,
    precision: float | None = None,
) -> SuiteAcuity | None:
    """Say what a full baseline would let the judge see of a step that runs like this.

    It is judged alone. ``None`` where fewer than two of *runs* have a time.
    """
    if sum(STEP_MS.name in run.times for run in runs) < 2:  # noqa: PLR2004  to scatter
        return None
    kind, name = runs[-1].environment.hardware.kind, runs[-1].test
    known = reference_of(STEP_MS, new_entry(runs).runs, kind, None)
    if known is None:
        return None
    full = replace(known, runs=FULL_RUNS)
    return _suite_acuity(
        {name: full}, {name: ()}, Climate(precision=precision), project
    )


def _suite_acuity(
    references: Mapping[str, Reference],
    tests: Mapping[str, Layers],
    climate: Climate,
    project: Tolerance,
) -> SuiteAcuity | None:
    def seen(tolerance: Tolerance) -> list[Acuity]:
        return [
            _acuity(test, reference, (*tests[test], tolerance), climate)
            for test, reference in references.items()
        ]

    if not references:
        return None
    wider = {ratio: seen(_wider(project, ratio)) for ratio in ROUND_TOLERANCES}
    return suite_acuity(seen(project), wider)


def fresh_efforts(
    tests: Mapping[str, Layers],
    stored: Baselines,
    climate: Climate,
    project: Tolerance = WHOLE,
) -> dict[str, Effort]:
    """Return the fresh runs that each test needs against what is *stored* of it."""
    references = references_of(stored.entries, stored.hardware.kind)
    return {
        test: effort(
            reference,
            _limits(reference, (*tests[test], project)),
            climate,
            stored_runs=[reference.runs],
        )
        for test, reference in references.items()
        if test in tests
    }


def stored_efforts(
    tests: Mapping[str, Layers],
    stored: Baselines,
    precision: float,
    project: Tolerance = WHOLE,
) -> dict[str, Effort]:
    """Return how many runs of each test must be *stored*, all of the file judged at once."""
    references = references_of(stored.entries, stored.hardware.kind)
    climate = Climate(tests=len(references), precision=precision)
    return {
        test: effort(
            reference,
            _limits(reference, (*tests[test], project)),
            climate,
            stored_runs=STORED_RUNS,
        )
        for test, reference in references.items()
        if test in tests
    }


def references_of(
    entries: Mapping[str, Entry], kind: DeviceKind
) -> dict[str, Reference]:
    """Return what the stored step times of each entry say, where it has any."""
    prior = prior_of(entries.values(), kind)
    found = {
        test: reference_of(STEP_MS, entry.runs, kind, prior)
        for test, entry in entries.items()
    }
    return {test: known for test, known in found.items() if known is not None}


def _acuity(
    test: str, reference: Reference, layers: Layers, climate: Climate
) -> Acuity:
    limits = _limits(reference, layers)
    fresh = deciding_runs(reference, limits, climate)
    return acuity(test, reference, limits, climate, fresh)


def _limits(reference: Reference, layers: Layers) -> Limits:
    tolerance = merged(layers)
    return Limits.of(
        reference.typical,
        tolerance=tolerated(STEP_MS, tolerance),
        detect=noticed(STEP_MS, tolerance),
        floor=floored(STEP_MS, tolerance).floor,
    )


def _wider(project: Tolerance, ratio: float) -> Tolerance:
    """Return the *project*'s tolerance with another one for step times."""
    name = str(STEP_MS.budget)
    floors = {n: floor for n, floor in project.floors.items() if n != name}
    return replace(project, ratios={**project.ratios, name: ratio}, floors=floors)
