"""The smallest slowdown that stored runs let the judge see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..baselines.store import read
from ..judge.calls import WHOLE_PROJECT, merged, references_of
from ..judge.comparison import ROUND_TOLERANCES, acuity, suite_acuity
from ..judge.context import SuiteContext
from ..judge.readings import StoredTimes
from ..judge.verdict import step_limits
from ..model.baseline import Entry
from ..model.budget import Tolerance
from ..model.environment import DeviceKind, Hardware
from ..model.metrics import STEP_MS
from ..model.verdict import DetectableChange, SuiteAcuity
from ..settings import Settings
from .screening import Case


Layers = Sequence[Tolerance]
"""What the marks of a test say, the first that names a metric decides."""


def acuity_of(
    tests: Mapping[str, Layers],
    entries: Mapping[str, Entry],
    kind: DeviceKind,
    project: Tolerance = WHOLE_PROJECT,
) -> SuiteAcuity | None:
    """Return which slowdowns of *tests* can be seen among all *entries*.

    ``None`` if none of them has a stored time.
    """
    references = references_of(entries, kind)
    known = {test: references[test] for test in tests if test in references}
    if not known:
        return None
    suite = SuiteContext(tests=len(references))

    def seen(tolerance: Tolerance) -> list[DetectableChange]:
        return [
            _acuity(test, reference, (*tests[test], tolerance), suite)
            for test, reference in known.items()
        ]

    wider = {ratio: seen(_wider(project, ratio)) for ratio in ROUND_TOLERANCES}
    return suite_acuity(seen(project), wider)


def _acuity(
    test: str, reference: StoredTimes, layers: Layers, suite_context: SuiteContext
) -> DetectableChange:
    limits = step_limits(reference.typical, merged(layers))
    return acuity(test, reference, limits, suite_context)


def _wider(project: Tolerance, ratio: float) -> Tolerance:
    """Return the *project*'s tolerance with another one for step times."""
    name = str(STEP_MS.budget)
    # A floor in milliseconds would hide what another ratio changes.
    floors = {n: floor for n, floor in project.floors.items() if n != name}
    return replace(project, ratios={**project.ratios, name: ratio}, floors=floors)


def acuity_of_refresh(
    cases: Iterable[Case],
    taken: Collection[str],
    settings: Settings,
    hardware: Hardware,
) -> SuiteAcuity | None:
    """Return what the baselines that were just *taken* let the judge see."""
    if not taken:
        return None
    tests = _tolerances(cases)
    return acuity_of(
        {key: layers for key, layers in tests.items() if key in taken},
        read(settings.baselines, hardware).entries,
        hardware.kind,
        settings.tolerance,
    )


def _tolerances(cases: Iterable[Case]) -> dict[str, tuple[Tolerance, ...]]:
    return {
        key: calls[-1].tolerances for case in cases for key, calls in case.calls.items()
    }
