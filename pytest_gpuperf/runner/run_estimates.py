"""Estimates run counts, duration and the smallest detectable slowdown before
measuring.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from ..baselines.refresh import new_entry
from ..baselines.store import read
from ..judge.calls import WHOLE_PROJECT
from ..judge.calls import merged
from ..judge.calls import references_of
from ..judge.context import SuiteContext
from ..judge.readings import StoredTimes
from ..judge.sensitivity import ROUND_TOLERANCES
from ..judge.sensitivity import acuity
from ..judge.sensitivity import suite_acuity
from ..judge.stored_times import reference_of
from ..judge.verdict import ALONE
from ..judge.verdict import step_limits
from ..measure.plan import LATER_STEPS
from ..measure.timing import ROUND_MS
from ..measure.warmup import HEATING_MS
from ..measure.warmup import LEAST_WARMUP_STEPS
from ..model.baseline import FULL_RUNS
from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.baseline import Refresh
from ..model.baseline import RunSummary
from ..model.baseline import full_runs
from ..model.budget import Tolerance
from ..model.checkup import GateCost
from ..model.checkup import PlannedGate
from ..model.environment import Capability
from ..model.environment import DeviceKind
from ..model.known_calls import KnownCalls
from ..model.measurement import Measurement
from ..model.metrics import LATENCY_MS
from ..model.metrics import SENTINELS
from ..model.metrics import STEP_MS
from ..model.units import counted
from ..model.verdict import DetectableChange
from ..model.verdict import SuiteAcuity
from ..report.screen.precision import duration
from ..settings import Settings
from .screening import Case
from .screening import Group


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
    return _suite_acuity(known, tests, SuiteContext(tests=len(references)), project)


def acuity_of_step(
    runs: Sequence[Measurement],
    project: Tolerance = WHOLE_PROJECT,
) -> SuiteAcuity | None:
    """Return which slowdowns a full baseline would show of a step that runs like this.

    It is judged alone. ``None`` if fewer than two of *runs* have a time.
    """
    if sum(STEP_MS.name in run.times for run in runs) < 2:  # noqa: PLR2004  to scatter
        return None
    kind, name = runs[-1].environment.hardware.kind, runs[-1].test
    known = reference_of(STEP_MS, new_entry(runs).runs, kind, None)
    if known is None:
        return None
    full = replace(known, runs=FULL_RUNS)
    return _suite_acuity({name: full}, {name: ()}, ALONE, project)


def _suite_acuity(
    references: Mapping[str, StoredTimes],
    tests: Mapping[str, Layers],
    suite_context: SuiteContext,
    project: Tolerance,
) -> SuiteAcuity | None:
    def seen(tolerance: Tolerance) -> list[DetectableChange]:
        return [
            _acuity(test, reference, (*tests[test], tolerance), suite_context)
            for test, reference in references.items()
        ]

    if not references:
        return None
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


# Forecasts a gate from what the runs of its baselines took.

PROCESS_SECONDS: Final = 0.2
"""A process of its own: its start, pytest in it and its end (0.15 to 0.25 s measured)."""

GPU_PROCESS_SECONDS: Final = PROCESS_SECONDS + HEATING_MS / 1e3 + 1.0
"""The same on a GPU: a context and libraries (assumed 1 s), and queued work to warm up."""

UNTIMED_STEPS: Final = LEAST_WARMUP_STEPS + LATER_STEPS
"""Steps of a run beside those in its samples."""


def gate_seconds(groups: Sequence[Group], entries: Mapping[str, Entry]) -> float | None:
    """Return how long one run of each group takes, one after the other.

    A group without a stored time is taken to be like the others; ``None`` if no group
    has one. What fixtures take is not known.
    """
    stored = KnownCalls(entries)
    each = [_group_seconds(stored.of(group).values()) for group in groups]
    known = [seconds for seconds in each if seconds]
    if not known:
        return None
    return len(groups) * fmean(known)


GATE_START_SECONDS: Final = 15.0
"""Before the first test: pytest, torch, and the process that forks the others (CPU time)."""

CLOCKED_SECONDS: Final = 0.5
COUNTED_SECONDS: Final = 1.3
"""A test of a small step, with and without a clock (``benchmarks/gate_cost.py``)."""


def gate_cost(
    gate: PlannedGate, entries: Mapping[str, Entry], kind: DeviceKind
) -> GateCost:
    """Return what *gate* takes, by the stored times or else as small steps do."""
    stored = KnownCalls(entries)
    tests = [test for group in gate.groups for test in group]
    each = {test: _group_seconds(stored.of((test,)).values()) for test in tests}
    slowest = max(each, key=lambda test: each[test], default="")
    small = CLOCKED_SECONDS if kind.has(Capability.CLOCK) else COUNTED_SECONDS
    known = gate_seconds(gate.groups, entries)
    seconds = small * len(tests) if known is None else known
    return GateCost(
        seconds=GATE_START_SECONDS + seconds,
        most=GATE_START_SECONDS + gate.seconds * len(tests),
        start=GATE_START_SECONDS,
        stored=sum(map(bool, each.values())),
        saved=PROCESS_SECONDS * (len(gate.groups) - gate.modules),
        slowest=slowest if each.get(slowest) else "",
        slowest_seconds=each.get(slowest, 0.0),
    )


def _group_seconds(entries: Iterable[Entry]) -> float:
    newest = [entry.runs[-1] for entry in entries if entry.runs]
    timed = [run for run in newest if STEP_MS.name in run.times]
    is_queued = any(run.round_steps is not None for run in timed)  # on a GPU
    process = GPU_PROCESS_SECONDS if is_queued else PROCESS_SECONDS
    return process + sum(map(_run_seconds, timed)) if timed else 0.0


def _run_seconds(run: RunSummary) -> float:
    """Return what a run of a step took: rounds, single steps and sentinels."""
    rounds = run.times[STEP_MS.name]
    step_ms = rounds.q50
    round_ms = max(ROUND_MS, step_ms * (run.round_steps or 1))
    single = sum(
        found.samples * found.q50
        for metric in (LATENCY_MS, *SENTINELS)
        if (found := run.times.get(metric.name)) is not None
    )
    return (rounds.samples * round_ms + single + UNTIMED_STEPS * step_ms) / 1e3


# Announces the expected cost and precision of runs before they are made.

LEAST_ANNOUNCED_SECONDS: Final = 10.0
"""Shorter gates end before a forecast is read."""

SecondsFor = Callable[[Mapping[str, int]], float]
"""How long it takes till each test has so many undisturbed runs, by what runs took."""


class RunEstimates:
    """Plans the runs of one enabled run beside the *stored* baselines."""

    def __init__(
        self, settings: Settings, stored: Baselines, announce: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._stored = stored
        self._announce = announce

    def runs_of(self, groups: Sequence[Group]) -> dict[Group, int]:
        """Return the runs of the groups that a refresh is sure to take, before any is made."""
        update, kind = self._settings.update, self._stored.hardware.kind
        if update not in {Refresh.MISSING, Refresh.ALL}:
            return {}
        stored = self._stored.entries if update is Refresh.MISSING else {}
        chosen = [g for g in groups if not all(test in stored for test in g)]
        return dict.fromkeys(chosen, full_runs(kind))

    def announce_gate(self, groups: Sequence[Group], slots: int) -> None:
        """Say how long the first run of all *groups* takes on so many *slots*."""
        seconds = gate_seconds(groups, self._stored.entries)
        if self._settings.update is not None or seconds is None:
            return
        here = seconds / min(slots, len(groups))
        if here >= LEAST_ANNOUNCED_SECONDS:
            tests = counted(sum(map(len, groups)), "test")
            self._announce(
                f"gpuperf: measuring {tests}, "
                f"{duration(here)}; tests in doubt are run again"
            )

    def announce_refresh(
        self, wanted: Mapping[str, int], seconds_for: SecondsFor
    ) -> None:
        """Say what it will cost to record tests that have been run once."""
        if wanted:
            runs = " to ".join(map(str, sorted({*wanted.values()})))
            tests = counted(len(wanted), "test")
            self._announce(
                f"gpuperf: refreshing {tests}, {runs} runs each, "
                f"{duration(seconds_for(wanted))} left"
            )

    def acuity(
        self, cases: Iterable[Case], taken: Collection[str]
    ) -> SuiteAcuity | None:
        """Say what the baselines that were just *taken* let the judge see."""
        if not taken:
            return None
        tests = _tolerances(cases)
        hardware, settings = self._stored.hardware, self._settings
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
