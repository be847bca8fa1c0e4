"""What runs cost and show: said before they are made, and when they are stored."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence

from .baselines.store import read
from .foresight import acuity_of
from .gate import Case
from .model.acuity import SuiteAcuity
from .model.baseline import FULL_RUNS
from .model.baseline import Baselines
from .model.budget import Tolerance
from .settings import Settings


class Outlook:
    """Speaks of the runs of one enabled run beside the *stored* baselines."""

    def __init__(
        self, settings: Settings, stored: Baselines, announce: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._stored = stored
        self._announce = announce

    def announce_refresh(self, cases: Sequence[Case]) -> None:
        """Say what it will cost to record tests that have been run once."""
        if cases:
            left = sum(case.results[0].seconds for case in cases) * (FULL_RUNS - 1)
            tests = "1 test" if len(cases) == 1 else f"{len(cases)} tests"
            self._announce(
                f"gpuperf: refreshing {tests}, {FULL_RUNS} runs each, "
                f"about {left:.0f} s to go"
            )

    def acuity(
        self, cases: Iterable[Case], taken: Collection[str]
    ) -> SuiteAcuity | None:
        """Say what the baselines that were just *taken* let the judge see."""
        if not taken:
            return None
        hardware, tests = self._stored.hardware, _tolerances(cases)
        return acuity_of(
            {key: layers for key, layers in tests.items() if key in taken},
            read(self._settings.baselines, hardware).entries,
            hardware.kind,
            self._settings.tolerance,
        )


def _tolerances(cases: Iterable[Case]) -> dict[str, tuple[Tolerance, ...]]:
    return {
        key: calls[-1].tolerances for case in cases for key, calls in case.calls.items()
    }
