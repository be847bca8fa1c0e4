"""What would fail a test and is a warning for now: by a soft start, a quarantine, a history.

A run that the history does not know counts as one that was worse: a lost or broken history
makes nothing green that would be red without it.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from ..errors import ErrorId
from ..errors import GpuperfError
from ..errors import UsageError
from ..judge.wording import would_have_failed
from ..model.metric import MetricKind
from ..model.metrics import METRICS
from ..model.run import Report
from ..model.soft_start import Quarantine
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from ..model.verdict import Verdict
from ..report.screen.counts import soft_lines
from ..report.screen.summary import Line
from ..settings import Settings
from .outcome import fails
from .screening import Case
from .verdicts import Verdicts


IN_A_ROW: Final = "consecutive runs"
"""How a softened verdict ends that only a history softens."""

NOT_WORSE: Final = frozenset(
    outcome.value for outcome in (Outcome.PASS, Outcome.IMPROVED, Outcome.INCONCLUSIVE)
)
"""Outcomes of an earlier run that end a row of worse ones."""

WORSE: Final = frozenset(outcome.value for outcome in Outcome if outcome.fails)
"""Those that belong to the row. All others say nothing, and so they do."""


class SoftStart:
    """Softens the verdicts of a run on one kind of *hardware*, by its key.

    ``quarantines`` are those of its tests by node id, once they were collected.
    """

    def __init__(self, settings: Settings, hardware: str) -> None:
        self.settings: Final = settings
        self.quarantines: dict[str, Quarantine] = {}
        self._hardware = hardware
        self._before: dict[tuple[str, str], Sequence[str | None]] = {}
        self._trouble = ""

    def applied(self, cases: Mapping[str, Case], verdicts: Verdicts) -> Verdicts:
        """Say of each call that would fail its test why it does not yet, if so.

        A test that failed by itself does fail.
        """
        judged = {t: c for t, c in verdicts.items() if not cases[t].last.ending.fails}
        self._ask_history(
            [
                (verdict.test, v.metric)
                for test, calls in judged.items()
                if not self._last_day(test)
                for verdict in calls.values()
                for v in _slow(verdict)
            ]
        )
        softened = {
            test: {call: self._softened(test, v) for call, v in calls.items()}
            for test, calls in judged.items()
        }
        return {**verdicts, **softened}

    def notes(self, test: str, verdict: TestVerdict) -> Iterator[str]:
        """Say why a failure of *test* is, or is no more, a warning."""
        found = self.quarantines.get(test)
        if found is not None:
            over = "ended on" if self._is_over(found) else "lasts until"
            yield f"the quarantine {over} {found.until}: {found.reason}"
        unknown = [v for v in _slow(verdict) if self._lacks(verdict, v)]
        if unknown and not self._last_day(test):
            why = self._trouble or "an earlier run of this test is not in the history"
            yield (
                f"gpuperf_consecutive = {self.settings.consecutive} softens nothing, as "
                f"what is unknown counts as worse: {why}"
            )

    def lines(self, reports: Mapping[str, Report]) -> tuple[Line, ...]:
        """Return what the summary says of all *reports* together."""
        return tuple(soft_lines(self.quarantines, reports, self.settings))

    def _softened(self, test: str, verdict: TestVerdict) -> TestVerdict:
        if not fails(verdict, self.settings):
            return verdict
        day = self._last_day(test)
        if day:
            return replace(verdict, softened=would_have_failed(day))
        slow = _slow(verdict)
        rows = [self._row(verdict, v) for v in slow]
        forgiven = [v for v, row in zip(slow, rows, strict=True) if row]
        others = tuple(
            replace(v, outcome=Outcome.PASS) if v in forgiven else v
            for v in verdict.verdicts
        )
        if not forgiven or fails(replace(verdict, verdicts=others), self.settings):
            return verdict
        count = f"{max(rows)} of {self.settings.consecutive}"
        return replace(verdict, softened=f"worse in {count} {IN_A_ROW}")

    def _last_day(self, test: str) -> str:
        """Return until when failures of *test* are warnings; empty if they are none."""
        found = self.quarantines.get(test)
        own = found.until if found and not self._is_over(found) else ""
        return max(own, self.settings.soft_day)

    def _is_over(self, quarantine: Quarantine) -> bool:
        return self.settings.today > quarantine.until

    def _row(self, verdict: TestVerdict, slow: Verdict) -> int:
        """Count the worse runs in a row up to this one; 0 if there are enough to fail."""
        known = self._before.get((verdict.test, slow.metric), ())
        ended = [n for n, outcome in enumerate(known) if outcome in NOT_WORSE]
        return ended[0] + 1 if ended else 0

    def _lacks(self, verdict: TestVerdict, slow: Verdict) -> bool:
        """Whether an earlier run that decides is unknown."""
        known = self._before.get((verdict.test, slow.metric))
        if known is None:
            return bool(self._trouble)
        needed = self.settings.consecutive - 1
        is_known = sum(outcome in WORSE for outcome in known) >= needed
        return not is_known and not self._row(verdict, slow)

    def _ask_history(self, slow: Collection[tuple[str, str]]) -> None:
        """Read the outcomes of the runs before, the newest first, as far as they decide."""
        new = [key for key in slow if key not in self._before]
        last, location = self.settings.consecutive - 1, self.settings.history
        if not new or not last or location is None or self._trouble:
            return
        # Nothing of it is needed until something got slower.
        from ..history.index import HISTORY_INDEX_FILE
        from ..history.index import HistoryIndex
        from ..history.place import PART_SUFFIX
        from ..history.place import place_at
        from ..model.history import Series

        try:
            path = self.settings.artefacts / HISTORY_INDEX_FILE
            with closing(HistoryIndex(place_at(location), location, path)) as index:
                for left in index.left_out():
                    # It may be the one of the run before.
                    if left.name.endswith(PART_SUFFIX):
                        msg = f"{left.name} in the history: {left.why}"
                        raise UsageError(msg, ErrorId.GP523)
                for call, metric in new:
                    series = Series(test=call, metric=metric, hardware=self._hardware)
                    points = index.points(series, last)
                    self._before[call, metric] = [p.outcome for p in reversed(points)]
        except GpuperfError as error:
            self._trouble = str(error)


def _slow(verdict: TestVerdict) -> list[Verdict]:
    """Return what failed of it that varies from run to run: counts and bytes do not."""
    return [
        v
        for v in verdict.verdicts
        if v.outcome.fails and METRICS[v.metric].kind is MetricKind.NOISY
    ]
