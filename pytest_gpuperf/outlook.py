"""What runs cost and show: said before they are made, and when they are stored."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from .baselines.refresh import new_entry
from .baselines.store import read
from .foresight import acuity_of
from .foresight import fresh_efforts
from .foresight import stored_efforts
from .gate import MOST_FRESH_RUNS
from .gate import Case
from .gate import Group
from .gate import Judge
from .gate import Run
from .gate import confirm
from .judge.climate import Climate
from .judge.effort import MOST_DECIDING
from .judge.reading import MOST_REPEATED
from .model.acuity import SuiteAcuity
from .model.baseline import FULL_RUNS
from .model.baseline import Baselines
from .model.baseline import full_runs
from .model.budget import Tolerance
from .model.effort import Effort
from .report.effort import fresh_text
from .report.effort import stored_text
from .settings import Settings


class Outlook:
    """Plans the runs of one enabled run beside the *stored* baselines."""

    def __init__(
        self, settings: Settings, stored: Baselines, announce: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._stored = stored
        self._announce = announce

    def confirm(
        self,
        groups: Sequence[Group],
        run: Run,
        cases: Mapping[str, Case],
        judge: Judge,
        climate: Climate,
    ) -> None:
        """Run again what one run did not decide, and say before what that will cost."""
        asked = climate.precision is not None
        if asked:
            together = [cases[test] for group in groups for test in group]
            self._announce_fresh(together, climate, judge)
        confirm(
            groups,
            run,
            cases,
            judge,
            seconds=self._settings.seconds,
            most_runs=MOST_DECIDING + MOST_REPEATED if asked else MOST_FRESH_RUNS,
        )

    def announce_refresh(self, cases: Sequence[Case]) -> None:
        """Say what it will cost to record tests that have been run once."""
        if cases:
            runs = full_runs(self._stored.hardware.kind)
            left = sum(case.results[0].seconds for case in cases) * (runs - 1)
            tests = "1 test" if len(cases) == 1 else f"{len(cases)} tests"
            self._announce(
                f"gpuperf: refreshing {tests}, {runs} runs each, "
                f"about {left:.0f} s to go"
            )

    def stored_runs(self, cases: Sequence[Case]) -> dict[str, int]:
        """Return how many runs make the baseline of each test; eight have been made."""
        precision = self._settings.precision
        if precision is None:
            return {}
        efforts = self._stored_efforts(cases, precision)
        stored = {key: effort.stored for key, effort in efforts.items()}
        wanted = {case.test: _most(case, stored) for case in cases}
        seconds = sum(
            case.seconds / len(case.results) * max(0, wanted[case.test] - FULL_RUNS)
            for case in cases
        )
        if efforts:
            self._announce(stored_text(precision, list(efforts.values()), seconds))
        return wanted

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
            settings.precision,
        )

    def _announce_fresh(
        self, cases: Sequence[Case], climate: Climate, judge: Judge
    ) -> None:
        efforts = fresh_efforts(
            _tolerances(cases), self._stored, climate, self._settings.tolerance
        )
        undecided = {
            key: efforts[key]
            for case in cases
            for key, calls in case.calls.items()
            if key in efforts and not judge(calls).settled
        }
        wanted = {
            case.test: _most(case, {key: e.fresh for key, e in undecided.items()})
            for case in cases
        }
        seconds = sum(self._seconds_left(case, wanted[case.test]) for case in cases)
        if efforts:
            judged, open_ones = list(efforts.values()), list(undecided.values())
            precision = climate.precision or 0.0
            self._announce(fresh_text(precision, judged, open_ones, seconds))

    def _stored_efforts(
        self, cases: Sequence[Case], precision: float
    ) -> Mapping[str, Effort]:
        measured = {
            key: new_entry(runs)
            for case in cases
            for key, runs in case.measurements.items()
        }
        entries = {**self._stored.entries, **measured}
        then = Baselines(hardware=self._stored.hardware, entries=entries)
        return stored_efforts(
            _tolerances(cases), then, precision, self._settings.tolerance
        )

    def _seconds_left(self, case: Case, runs: int) -> float:
        """Return what so many runs cost beyond those made, under the cap."""
        spent = case.seconds
        total = min(spent / len(case.results) * runs, self._settings.seconds)
        return max(0.0, total - spent)


def _tolerances(cases: Iterable[Case]) -> dict[str, tuple[Tolerance, ...]]:
    return {
        key: calls[-1].tolerances for case in cases for key, calls in case.calls.items()
    }


def _most(case: Case, runs: Mapping[str, int]) -> int:
    """Return the most runs that a call of this test asks for: they share them."""
    return max((runs[key] for key in case.calls if key in runs), default=0)
