"""What came of the measured tests of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from .baselines.refresh import Change
from .model.acuity import SuiteAcuity
from .model.baseline import Origin
from .model.environment import Hardware
from .model.leftovers import Leftovers
from .model.measurement import Samples
from .model.refresh import Drift
from .model.refresh import Kept
from .model.run import Report
from .model.suite import SuiteVerdict
from .model.verdict import TestVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What came of the planned tests."""

    hardware: Hardware
    baseline_file: str
    software: Mapping[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    reports: Mapping[str, Report] = field(default_factory=dict)
    verdicts: tuple[TestVerdict, ...] = ()
    samples: Mapping[str, tuple[Samples, ...]] = field(default_factory=dict)
    suite: SuiteVerdict | None = None
    refreshed: tuple[Change, ...] = ()
    acuity: SuiteAcuity | None = None
    kept: tuple[Kept, ...] = ()
    drifts: tuple[Drift, ...] = ()
    drifted_tests: tuple[str, ...] = ()
    leftovers: Leftovers = field(default_factory=Leftovers)
    skipped_files: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    explained: bool = False
    note: str = ""

    @property
    def moved_with_the_environment(self) -> tuple[TestVerdict, ...]:
        """Tests whose exact metrics moved together with torch's version.

        They are one verdict for the run, not a failure a test.
        """
        return tuple(
            test
            for test in self.verdicts
            if any(verdict.environment_changed for verdict in test.verdicts)
        )
