"""Reports the tests of one run: their verdicts in words, with the commands to run next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..baselines.store import path_of
from ..model.environment import Hardware
from ..model.run import Report
from ..model.verdict import TestVerdict
from ..report.command import Invocation
from ..report.screen.drift import drift_text
from ..report.screen.failure import failure_text
from ..settings import MissingBaseline
from ..settings import Settings
from .baseline_writer import Refreshed
from .outcome import report_of
from .plan import repeated_options
from .plan import shown_path
from .screening import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """What the text of a test's report needs to know of its run."""

    settings: Settings
    hardware: Hardware
    rootdir: Path
    directory: Path

    @property
    def baseline_file(self) -> str:
        """The file of this hardware's baselines, as people see it."""
        path = path_of(self.settings.baselines, self.hardware)
        return shown_path(path, self.rootdir)

    @property
    def invocation(self) -> Invocation:
        """How a command is typed that measures what this run measured."""
        return Invocation(
            options=repeated_options(self.settings, self.hardware.kind),
            root=self.rootdir,
            folder=self.directory,
            seconds=self.settings.seconds,
        )

    @property
    def note(self) -> str:
        """What is to be known of the device that was taken."""
        return self.settings.note_on(self.hardware.kind)

    def report(self, case: Case, verdicts: Mapping[str, TestVerdict]) -> Report:
        """Return the report of *case*, of which each call has one of *verdicts*."""
        explain = partial(self.explanation, case.test)
        return report_of(case, verdicts, self.settings, explain)

    def explanation(self, nodeid: str, verdict: TestVerdict) -> str:
        """Say why *verdict*, of a call of the test *nodeid*, fails it."""
        return failure_text(
            verdict,
            nodeid=nodeid,
            invocation=self.invocation,
            strict=self.settings.strict,
            baseline_needed=self.settings.missing_baseline is not MissingBaseline.WARN,
        )

    def refusal(self, case: Case, refreshed: Refreshed) -> str:
        """Say why the refresh did not take *case* as it should; nothing if it did."""
        drifts = refreshed.drifts_of(case.calls)
        if not drifts:
            return refreshed.why_not(case.calls)
        return drift_text(
            drifts,
            nodeid=case.test,
            invocation=self.invocation,
        )
