"""The findings of one run for readers elsewhere, the worst first."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final
from typing import NamedTuple

from ...model.codec import decode
from ...model.results import Record
from ...model.results import Results
from ...model.run import Ending
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ...model.verdict import Verdict
from ...model.verdict import worst_of
from ..headline import PEOPLE
from ..headline import headline_of
from ..headline import what_happened
from ..numbers import format_apart
from ..numbers import format_change
from ..numbers import format_value
from ..numbers import metric_named
from ..remedies import remedy_of
from ..screen.findings import badness
from ..screen.findings import explained


FAILING: Final = frozenset({Ending.FAILED, Ending.DIED})
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
_RANKS: Final = {outcome: rank for rank, outcome in enumerate(Outcome)}

Raw = Mapping[str, Any]
"""Part of a record: a verdict, a call or a finding as JSON."""


class Remark(NamedTuple):
    """What to report on one metric of a test, or on a test without a judged metric.

    A tuple, for there are many.
    """

    test: str
    record: Record
    call: Raw | None = None
    verdict: Raw | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What was judged; ``None`` if the test ended by itself."""
        return (
            _OUTCOMES[self.verdict["outcome"]] if self.verdict else self.record.outcome
        )

    @property
    def word(self) -> str:
        """What happened, in capitals if that is a failure, or how the test ended."""
        outcome = self.outcome if self.is_telling else None
        if outcome and outcome.fails and self.verdict is not None:
            return what_happened(decode(Verdict, self.verdict))
        ended = self.record.ending.value
        word = PEOPLE.get(outcome, ended) if outcome else ended
        return word.upper() if self.fails else word

    @property
    def is_telling(self) -> bool:
        """Whether the outcome says what happened: a test can pass it and fail."""
        return not (self.fails and self.outcome in {Outcome.PASS, Outcome.NOT_JUDGED})

    @property
    def fails(self) -> bool:
        """Whether it is a reason why the test failed."""
        if self.record.ending not in FAILING:
            return False
        # A setting may fail a test without a failing metric; then its worst outcome is
        # the reason.
        outcome, worst = self.outcome, self.record.outcome
        if outcome is None or worst is None or not worst.fails:
            return outcome is worst
        return outcome.fails

    @property
    def metric(self) -> str:
        return str(self.verdict["metric"]) if self.verdict else ""

    @property
    def before(self) -> float | None:
        """The budget or the baseline that it was compared with."""
        if self.verdict is None:
            return None
        return self.verdict.get("limit" if self.is_budgeted else "baseline")

    @property
    def is_budgeted(self) -> bool:
        """Whether it was compared with a budget, as it is without a baseline."""
        over = self.outcome is Outcome.OVER_BUDGET
        return over or (self.verdict or {}).get("baseline") is None

    @property
    def now(self) -> float | None:
        return self.verdict.get("now") if self.verdict else None

    @property
    def change(self) -> float:
        """How much larger it became, as a ratio; 0 if that is not known."""
        if self.before is None or self.now is None:
            return 0.0
        return (self.now - self.before) / max(abs(self.before), 1e-9)


def remarks(results: Results) -> list[Remark]:
    """Return at least one remark a test: failures first, then by outcome and change."""
    found = [
        remark for test, record in results.tests.items() for remark in _of(test, record)
    ]
    return sorted(found, key=_badness)


def _of(test: str, record: Record) -> Iterator[Remark]:
    if not record.verdicts:
        yield Remark(test, record)
    for call in record.verdicts:
        found = [Remark(call["test"], record, call, v) for v in call["verdicts"]]
        failing = [r for r in found if r.outcome and r.outcome.fails]
        if failing or not found:
            yield from failing or [Remark(call["test"], record, call)]
        else:
            worst = worst_of(r.outcome for r in found if r.outcome)
            yield next(r for r in found if r.outcome is worst)


def _badness(remark: Remark) -> tuple[bool, int, float, str]:
    """Metrics that failed a test come before tests that failed by themselves."""
    outcome = remark.outcome if remark.is_telling else None
    rank = _RANKS[outcome] if outcome else len(_RANKS)
    return not remark.fails, rank, -remark.change, remark.test


def cells(remark: Remark) -> tuple[str, str, str]:
    """Write the reference of the metric, its value, and the change between them."""
    metric = metric_named(remark.metric)
    before, now = remark.before, remark.now
    if now is None:
        return "-", "-", "-"
    if before is None:
        return "-", format_value(metric, now), "-"
    texts = format_apart(metric, before, now)
    return texts[0], texts[-1], format_change(metric, before, now)


def sentence(remark: Remark) -> str:
    """Say it in one line: ``SLOWER: 12.00 ms per step, was 10.00 ms (+20.0 %)``."""
    if remark.verdict is None or remark.now is None or not remark.is_telling:
        return remark.record.headline or remark.word
    return headline_of(decode(Verdict, remark.verdict), is_short=True)


def advice(remark: Remark) -> str:
    """Say what happens on the line that is to blame, and what to do about it."""
    if remark.call is None:
        return ""
    named = [
        finding
        for finding in decode(TestVerdict, remark.call).findings
        if remark.metric in finding.metrics and finding.location
    ]
    if not named:
        return ""
    worst = min(named, key=badness)
    remedy = remedy_of(worst)
    fix = f"; fix: {remedy.do}" if remedy else ""
    return f"{explained(worst)}{fix}"


def place(remark: Remark, is_ours: Callable[[str], bool]) -> tuple[str, int]:
    """Return the file and line to look at: what waits or copies, else the test.

    *is_ours* returns whether a file belongs to the project.
    """
    for location in _locations(remark):
        if location.get("exact", True) and is_ours(location["file"]):
            return location["file"], location["line"]
    file, _, line = remark.record.where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (remark.record.where, 1)


def _locations(remark: Remark) -> Iterator[Raw]:
    findings: Sequence[Raw] = remark.call.get("findings", ()) if remark.call else ()
    for finding in findings:
        if remark.metric in finding.get("metrics", ["syncs"]) and finding.get(
            "location"
        ):
            yield finding["location"]
