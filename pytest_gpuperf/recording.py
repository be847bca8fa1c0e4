"""Keep what was measured: as pending, and as the new baselines where that was asked."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from pathlib import Path
from typing import Final

from .accepting import Measured
from .accepting import planned
from .accepting import stored_changes
from .baselines.pending import write_pending
from .baselines.refresh import Change
from .baselines.refresh import new_entry
from .baselines.refresh import outcomes_of
from .creep import Leeway
from .creep import anchored
from .errors import BaselineError
from .gate import Case
from .judging import merged
from .judging import prior_of
from .model.baseline import Baselines
from .model.baseline import Judged
from .model.baseline import Origin
from .model.baseline import full_runs
from .model.refresh import Drift
from .model.refresh import Kept
from .model.verdict import TestVerdict
from .settings import Settings


ACCEPTED: Final = "accepted as the new baseline"
KEPT: Final = "the baseline was kept: moved less than its own noise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What a refresh did: changed, kept, refused because of drift; or why it failed.

    ``taken`` says by entry why it has a baseline now that needs no judgement.
    """

    changes: tuple[Change, ...] = ()
    kept: tuple[Kept, ...] = ()
    drifts: tuple[Drift, ...] = ()
    taken: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""

    def drifts_of(self, calls: Collection[str]) -> list[Drift]:
        """Return what drifted too far of one test's *calls*."""
        return [drift for drift in self.drifts if drift.test in calls]


class Recorder:
    """Writes the baselines of one run, of code at *origin*, beside the *old* ones."""

    def __init__(
        self,
        settings: Settings,
        old: Baselines,
        announce: Callable[[str], None],
        origin: Origin | None = None,
    ) -> None:
        self._settings = settings
        self._old = old
        self._announce = announce
        self._origin = origin
        self._prior = prior_of(old.entries.values(), old.hardware.kind)

    def write_pending(
        self, cases: Sequence[Case], verdicts: Mapping[str, Mapping[str, TestVerdict]]
    ) -> Path | None:
        """Write what was measured, and the *verdicts* on it by test and call.

        No verdict is lost where that cannot be written.
        """
        said = {key: v for calls in verdicts.values() for key, v in calls.items()}
        entries = {
            key: replace(
                anchored(self._old.entries.get(key), new, leeway),
                judged=Judged(
                    outcomes=outcomes_of(said[key]), tolerance=leeway.tolerance
                ),
            )
            for key, new, leeway in self._measured(cases)
        }
        if not entries:
            return None
        measured = Baselines(hardware=self._old.hardware, entries=entries)
        try:
            return write_pending(self._settings.artefacts, measured)
        except BaselineError as error:
            self._announce(f"gpuperf: {error}")
            return None

    def store(
        self,
        cases: Sequence[Case],
        pending: Path | None,
        removed: Collection[str] = (),
    ) -> Refreshed:
        """Refresh what moved, unless it has drifted too far; drop what is *removed*.

        Raises ``BaselineError`` where that alone was to be done and cannot be written.
        """
        plan = planned(
            self._old.entries,
            self._measured(cases),
            accept_drift=self._settings.accept_drift,
        )
        refreshed = Refreshed(
            kept=plan.kept,
            drifts=plan.drifts,
            taken={unmoved.test: KEPT for unmoved in plan.kept},
        )
        try:
            stored = stored_changes(
                self._settings.baselines,
                self._old,
                plan.entries,
                removed,
                lock_folder=self._settings.artefacts,
            )
        except BaselineError as error:
            if not cases:
                raise
            where = f"; what was measured is in {pending}" if pending else ""
            return replace(refreshed, failure=f"{error}{where}")
        accepted = dict.fromkeys(plan.entries, ACCEPTED)
        return replace(refreshed, changes=stored, taken={**refreshed.taken, **accepted})

    def _measured(self, cases: Sequence[Case]) -> Iterator[Measured]:
        """Yield each call, what was measured of it, and what it may move."""
        kind = self._old.hardware.kind
        full = full_runs(kind)
        for case in cases:
            for key, calls in case.calls.items():
                runs = [call.measurement for call in calls]
                new = new_entry(runs, self._origin)
                precise = self._settings.precision is not None
                leeway = Leeway(
                    kind=kind,
                    tolerance=merged((*calls[-1].tolerances, self._settings.tolerance)),
                    prior=self._prior,
                    runs=max(full, len(new.runs)) if precise else full,
                )
                yield key, new, leeway
