"""The contents of the page: one section for each call of a test, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from math import inf
from math import isfinite
from typing import Final

from ...model.baseline import Entry
from ...model.environment import DeviceKind
from ...model.finding import Location
from ...model.history import Point
from ...model.metrics import Direction
from ...model.results import Record
from ...model.results import Results
from ...model.run import Ending
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ...model.verdict import Verdict
from ..json.checked_object import refuse
from ..json.results import EXPECTED_RESULTS
from ..json.results import verdict_of
from ..numbers import metric_named


History = Mapping[str, Mapping[str, Sequence[Point]]]
"""By call of a test and metric, oldest first."""

Samples = Mapping[str, Sequence[Mapping[str, Sequence[float]]]]
"""By call of a test: for each fresh run, by metric, what was sampled in it."""

SourceLines = Mapping[tuple[str, int], str]
"""By file and line."""

FAILED_ENDINGS: Final = frozenset({Ending.FAILED, Ending.DIED})

WORST_FIRST_ENDINGS: Final = (
    *(Ending.DIED.value, Ending.FAILED.value),
    *(outcome.value for outcome in Outcome if outcome is not Outcome.NOT_JUDGED),
    *(Ending.XFAILED.value, Ending.PASSED.value),
    *(Outcome.NOT_JUDGED.value, Ending.SKIPPED.value),
)
"""Words that a section can be counted as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One call of a test, or a test that came to no verdict."""

    key: str
    test: str
    record: Record
    verdict: TestVerdict | None = None

    @property
    def word(self) -> str:
        """What it is counted as."""
        return self.verdict.outcome.value if self.verdict else self.record.ending.value

    @property
    def failed(self) -> bool:
        """Whether its test failed because of it, as far as that is known."""
        if self.verdict is None:
            return self.record.ending in FAILED_ENDINGS
        outcome = self.verdict.outcome
        is_worst = (
            outcome is self.record.outcome and self.record.ending in FAILED_ENDINGS
        )
        return outcome.fails or is_worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A run, its *sections*, and what else is known of its tests.

    ``stored`` are the baselines, ``pending`` is what this run measured, both by call,
    from the folders named.
    """

    results: Results
    sections: Sequence[Section]
    stored: Mapping[str, Entry] = field(default_factory=dict)
    pending: Mapping[str, Entry] = field(default_factory=dict)
    samples: Samples = field(default_factory=dict)
    history: History = field(default_factory=dict)
    lines: SourceLines = field(default_factory=dict)
    pending_folder: str = ".gpuperf"
    baselines_folder: str = ""

    @property
    def kind(self) -> DeviceKind:
        """The kind of device that was measured on; any kind if nothing was measured."""
        hardware = self.results.head.hardware
        return hardware.kind if hardware else DeviceKind.CPU


def sections_of(results: Results, source: str) -> list[Section]:
    """Sort what came of a run: failures, the worst outcome, the largest excess first.

    Raises ``UsageError``, which names the *source*, where a verdict cannot be read.
    """
    sections = [
        section
        for test, record in results.tests.items()
        for section in _sections(test, record, source)
    ]
    return sorted(sections, key=_place)


def locations_of(sections: Sequence[Section]) -> Iterator[Location]:
    """Yield where their findings are."""
    for section in sections:
        for finding in section.verdict.findings if section.verdict else ():
            if finding.location is not None:
                yield finding.location


def _sections(test: str, record: Record, source: str) -> Iterator[Section]:
    if not record.verdicts:
        yield Section(key=test, test=test, record=record)
    for call in record.verdicts:
        verdict = verdict_of(call, source)
        # JSON can spell 1e999, which Python reads as infinity.
        _refuse_infinite(verdict, source)
        yield Section(key=verdict.test, test=test, record=record, verdict=verdict)


def _refuse_infinite(verdict: TestVerdict, source: str) -> None:
    """Raise ``UsageError`` if a number, such as 1e999, has no place in a picture."""
    for judged in verdict.verdicts:
        evidence = judged.evidence
        bounds = (evidence.low, evidence.high) if evidence else ()
        numbers = (judged.now, judged.baseline, judged.limit, *bounds)
        if any(number is not None and not isfinite(number) for number in numbers):
            found = f"a number of {verdict.test} is infinite"
            refuse(source, found, EXPECTED_RESULTS)


def _place(section: Section) -> tuple[bool, int, float]:
    return (
        not section.failed,
        WORST_FIRST_ENDINGS.index(section.word),
        -_excess(section),
    )


def _excess(section: Section) -> float:
    """Return how far the worst metric is beyond its baseline or limit, as a ratio."""
    if section.verdict is None:
        return 0.0
    judged = [
        v for v in section.verdict.verdicts if v.outcome is section.verdict.outcome
    ]
    return max(map(_beyond, judged), default=0.0)


def _beyond(verdict: Verdict) -> float:
    reference = verdict.limit if verdict.baseline is None else verdict.baseline
    if verdict.now is None or reference is None:
        return 0.0
    higher_is_better = metric_named(verdict.metric).direction is Direction.HIGHER
    # Always above 1 if worse, so that metrics of both directions sort together.
    small, large = sorted((verdict.now, reference))
    ratio = large / small if small > 0 else inf if large > 0 else 1.0
    return ratio if (verdict.now > reference) is not higher_is_better else 1 / ratio
