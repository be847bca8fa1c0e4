"""Keep what was measured: as pending, and as the new baselines where that was asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import Final

from ..baselines.acceptance import Measured, planned, stored_changes, with_evidence_of
from ..baselines.drift import Leeway, anchored
from ..baselines.format import why_unstorable
from ..baselines.refresh import keeps_disturbed, new_entry, outcomes_of, selects
from ..baselines.store import keep_operations, read, write_pending
from ..errors import BaselineError, ErrorId, UsageError
from ..judge.calls import (
    WHOLE_PROJECT,
    merged,
    prior_of,
    references_of,
    settle_together,
)
from ..judge.comparison import ROUND_TOLERANCES, acuity, suite_acuity
from ..judge.context import SuiteContext
from ..judge.operations import Digest
from ..judge.readings import StoredTimes
from ..judge.verdict import step_limits
from ..model.baseline import (
    ENOUGH_RUNS,
    BaselineChange,
    Baselines,
    Drift,
    Entry,
    Judged,
    Kept,
    Refresh,
    full_runs,
    session_id,
)
from ..model.budget import Tolerance
from ..model.environment import DeviceKind, Hardware
from ..model.metrics import STEP_MS
from ..model.run import TestResult
from ..model.verdict import DetectableChange, SuiteAcuity, TestVerdict
from ..report.command import Invocation, refresh_command
from ..report.screen.summary import Interrupted
from ..settings import Settings
from .screening import MOST_MADE_UP, Case, JudgeCall


# Stores each test of a refresh when it is complete, so that an interrupted one keeps
# it.

WRITING_SHARE: Final = 20
"""Writing takes this part of the time at most: a file of thousands of tests is large."""


class Storing:
    """Stores each test as soon as it has all its runs, and knows those of a broken round.

    *store* is called between two runs on one device, so it disturbs none there. If it
    fails, storing is left to the end of the run, which reports the reason.
    """

    def __init__(
        self,
        store: Callable[[Sequence[Case]], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._now = now
        self._cases: Mapping[str, Case] = {}
        self._wanted: Mapping[str, int] = {}
        self._under_way: dict[str, TestResult] = {}
        self._due: dict[str, Case] = {}
        self._next = -inf

    def follow(self, cases: Mapping[str, Case], wanted: Mapping[str, int]) -> None:
        """Store those of *cases* that reach as many undisturbed runs as are *wanted*."""
        self.flush()
        self._cases, self._wanted = cases, wanted

    def begin(self) -> None:
        """Note that a new run begins: results before it are in their cases already."""
        self._under_way.clear()

    def arrived(self, results: Sequence[TestResult]) -> None:
        """Take the *results* of a run that others may still be a part of."""
        for result in results:
            self._under_way[result.test] = result
            case = self._so_far(result.test)
            if has_all_runs(case, self._wanted.get(case.test)):
                self._due[case.test] = case
        if self._due and self._now() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Store what is complete."""
        if self._due and self._next < inf:
            began = self._now()
            is_stored = self._store(list(self._due.values()))
            self._due.clear()
            ended = self._now()
            # After a failure not before the end of the run, which reports the reason.
            pause = WRITING_SHARE * (ended - began) if is_stored else inf
            self._next = ended + pause

    def so_far(self) -> dict[str, Case]:
        """Return every test that has been run, also in an interrupted round."""
        tests = dict.fromkeys((*self._cases, *self._under_way))
        cases = {test: self._so_far(test) for test in tests}
        return {test: case for test, case in cases.items() if case.results}

    def _so_far(self, test: str) -> Case:
        known = self._cases[test].results if test in self._cases else []
        new = self._under_way.get(test)
        # By identity: `screen` appends a result to its case after this class has got
        # it, and it must not count as a second run.
        is_new = new is not None and not any(result is new for result in known)
        return Case(test, [*known, *([new] if new is not None and is_new else [])])


def has_all_runs(case: Case, wanted: int | None) -> bool:
    """Whether a refresh that *wanted* so many undisturbed runs is done with *case*."""
    if wanted is None or not case.calls:
        return False
    return case.clean_runs >= wanted or len(case.results) >= wanted + MOST_MADE_UP


ACCEPTED: Final = "accepted as the new baseline"
KEPT: Final = "the baseline was kept: moved less than its own noise"
SAME: Final = "the baseline was kept: nothing has changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What a refresh did: changed, kept, refused because of drift; or why it failed.

    ``taken`` says for each entry why it has a baseline that needs no judgement.
    ``refused`` says why an entry cannot have one: its measured values are impossible.
    """

    changes: tuple[BaselineChange, ...] = ()
    kept: tuple[Kept, ...] = ()
    drifts: tuple[Drift, ...] = ()
    taken: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, calls: Collection[str]) -> str:
        """Say why not all *calls* of one test have a baseline now; empty if they have."""
        if self.taken.keys() >= set(calls):
            return ""
        own = [self.refused[key] for key in calls if key in self.refused]
        return "\n".join(own) or self.failure

    def drifts_of(self, calls: Collection[str]) -> list[Drift]:
        """Return what drifted too far of one test's *calls*."""
        return [drift for drift in self.drifts if drift.test in calls]


class BaselineWriter:
    """Writes the baselines of one run, given the *old* ones."""

    def __init__(
        self,
        settings: Settings,
        old: Baselines,
        announce: Callable[[str], None],
        begun: datetime | None = None,
    ) -> None:
        """*begun* is when this run did; now, if it is not given."""
        begun = begun or datetime.now(timezone.utc)
        self._session = session_id(begun, token_hex(2))
        self._settings = settings
        self._old = old
        self._announce = announce
        self._prior = prior_of(old.entries.values(), old.hardware.kind)
        self._refused: dict[str, str] = {}

    def write_pending(
        self, cases: Sequence[Case], verdicts: Mapping[str, Mapping[str, TestVerdict]]
    ) -> Path | None:
        """Write what was measured, and the *verdicts* on it by test and call.

        No verdict is lost where that cannot be written.
        """
        entries = {
            key: replace(
                anchored(self._old.entries.get(key), new, leeway), judged=new.judged
            )
            for key, new, leeway in self._measured(cases, verdicts)
        }
        if not entries:
            return None
        hardware, folder = self._old.hardware, self._settings.artefacts
        measured = Baselines(hardware=hardware, entries=entries)
        try:
            path = write_pending(folder, measured)
            keep_operations(folder, hardware, entries, _operations(cases))
        except BaselineError as error:
            self._announce(f"gpuperf: {error}")
            return None
        return path

    def store(
        self,
        cases: Sequence[Case],
        verdicts: Mapping[str, Mapping[str, TestVerdict]],
        pending: Path | None,
        removed: Collection[str] = (),
    ) -> Refreshed:
        """Refresh what moved, unless it has drifted too far; drop what is *removed*.

        What the *verdicts* call another value than the stored one has moved. Raises
        ``BaselineError`` if that alone was to be done and cannot be written.
        """
        adds = self._settings.update is Refresh.EVIDENCE
        plan = (with_evidence_of if adds else planned)(
            self._old.entries,
            self._measured(cases, verdicts),
            accept_drift=self._settings.accept_drift,
        )
        refreshed = Refreshed(
            kept=plan.kept,
            drifts=plan.drifts,
            taken={one.test: SAME if one.noise is None else KEPT for one in plan.kept},
            refused=dict(self._refused),
        )
        try:
            stored = stored_changes(
                self._settings.baselines,
                self._old,
                plan.entries,
                removed,
                lock_folder=self._settings.artefacts,
            )
            # Kept entries as well: an older version stored none, and lines move.
            kept = {one.test: self._old.entries[one.test] for one in plan.kept}
            keep_operations(
                self._settings.baselines,
                self._old.hardware,
                {**kept, **plan.entries},
                _operations(cases),
                removed,
            )
        except BaselineError as error:
            # Pruning alone was asked, so no report of a test could carry the
            # failure.
            if not cases:
                raise
            where = f"; what was measured is in {pending}" if pending else ""
            failure = BaselineError(f"{error.text}{where}", error.error_id)
            return replace(refreshed, failure=str(failure))
        # What is only added to is judged as ever, by what was stored before.
        recorded = plan.entries.keys() - (self._old.entries if adds else {})
        accepted = dict.fromkeys(recorded, ACCEPTED)
        return replace(refreshed, changes=stored, taken={**refreshed.taken, **accepted})

    def _measured(
        self, cases: Sequence[Case], verdicts: Mapping[str, Mapping[str, TestVerdict]]
    ) -> Iterator[Measured]:
        """Yield each call, what was measured and said of it, and what it may move."""
        kind = self._old.hardware.kind
        full = full_runs(kind)
        for case in cases:
            for key, calls in case.calls.items():
                runs = [call.measurement for call in calls]
                new = new_entry(runs, self._session)
                why = why_unstorable(key, new)
                if why is not None:
                    self._refuse(key, why)
                    continue
                leeway = Leeway(
                    kind=kind,
                    tolerance=merged((*calls[-1].tolerances, self._settings.tolerance)),
                    prior=self._prior,
                    runs=full,
                )
                said = Judged(
                    outcomes=outcomes_of(verdicts[case.test][key]),
                    tolerance=leeway.tolerance,
                    disturbed=keeps_disturbed(runs),
                )
                yield key, replace(new, judged=said), leeway

    def _refuse(self, key: str, why: str) -> None:
        """Leave *key* out, and say so once: all others are kept."""
        if key not in self._refused:
            self._refused[key] = f"{key}: what was measured is not stored, {why}"
            self._announce(f"gpuperf: {self._refused[key]}")


def _operations(cases: Sequence[Case]) -> dict[str, Digest]:
    """Return what the newest run of each call that counted it ran."""
    return {
        key: next((r.operations for r in reversed(runs) if r.operations), ())
        for case in cases
        for key, runs in case.measurements.items()
    }


def interrupted(
    cases: Mapping[str, Case], wanted: Mapping[str, int], kind: DeviceKind
) -> Interrupted:
    """Divide the *wanted* tests by the runs that they have."""
    enough = min(ENOUGH_RUNS, full_runs(kind))
    known = {test: cases[test] for test in wanted if test in cases}
    whole = {t for t, case in known.items() if has_all_runs(case, wanted[t])}
    thin = {t for t, c in known.items() if c.calls and c.clean_runs >= enough} - whole
    return Interrupted(
        complete=sorted(whole),
        thin=sorted(thin),
        lost=[test for test in wanted if test not in whole | thin],
        enough=enough,
    )


def command_for_the_rest(
    lost: Sequence[str],
    update: Refresh | None,
    entries: Mapping[str, Entry],
    invocation: Invocation,
) -> str:
    """Return what refreshes what is *lost*: by name where an old baseline hides it."""
    # "missing" selects what has no baseline. A lost test with an old one must be
    # named.
    if update is Refresh.EVIDENCE:
        return refresh_command(update, invocation)
    is_missing = not any(test in entries for test in lost)
    if is_missing:
        return refresh_command(Refresh.MISSING, invocation)
    return refresh_command(Refresh.ALL, invocation, lost)


def selected_of(
    update: Refresh | None,
    cases: Mapping[str, Case],
    entries: Mapping[str, Entry],
    judge: JudgeCall,
) -> set[str]:
    """Return the tests of which a refresh takes over a call."""
    if update is None:
        return set()
    verdicts = settle_together(
        {
            test: {key: judge(calls) for key, calls in case.calls.items()}
            for test, case in cases.items()
        }
    )
    return {
        test
        for test, case in cases.items()
        for key, runs in case.measurements.items()
        if selects(update, verdicts[test][key], entries.get(key), runs)
    }


def stored_device_text(settings: Settings, hardware: Hardware) -> str:
    """Say which device nobody named is taken; nothing if there was no choice.

    Raises ``UsageError`` if the baselines are of several others.
    """
    kinds = " and ".join(kind.value for kind in settings.stored_on)
    taken, other = hardware.kind.value, "--gpuperf-device names another"
    if settings.device in settings.stored_on:
        return f"gpuperf: refreshing on {taken}, which has the baseline; {other}"
    if hardware.kind in settings.stored_on:
        return f"gpuperf: baselines on {kinds}, refreshing that on {taken}; {other}"
    if settings.stored_on:
        msg = (
            f"these tests have baselines on {kinds}, and none on {taken}; "
            "name one with --gpuperf-device"
        )
        raise UsageError(msg, ErrorId.GP414)
    return ""


# The smallest slowdown that stored runs let the judge see.


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
