"""Calls of tests and what came of each: for pages, summaries and annotations, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..model.finding import Finding
from ..model.run import Ending, Record, Results
from ..model.verdict import Outcome, TestVerdict, Verdict
from .headline import (
    ASKED_FIRST,
    PEOPLE,
    WORDS,
    excess,
    merged_headlines,
    missed_sentences,
    no_baseline_headline,
    telling,
    what_happened,
)
from .json import verdict_of
from .screen.findings import badness, causes_of


WORST_FIRST_ENDINGS: Final = (
    *(Ending.DIED.value, Ending.FAILED.value, Ending.WARNED.value),
    *(PEOPLE[o] for o in (Outcome.INCONCLUSIVE, Outcome.NO_BASELINE, Outcome.IMPROVED)),
    *(Ending.XFAILED.value, Ending.PASSED.value),
    *(PEOPLE[Outcome.NOT_CHECKED], Ending.SKIPPED.value),
)
"""Words that a call can be counted as; people call all that fails the same."""

PASSABLE: Final = frozenset({Outcome.PASS, Outcome.NOT_CHECKED})
"""Outcomes that fail no test by any setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCall:
    """One call of a *test*, or a test that came to no verdict; ``key`` names the call."""

    key: str
    test: str
    record: Record
    verdict: TestVerdict | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What was judged; ``None`` if the test ended by itself."""
        return self.verdict.outcome if self.verdict else self.record.outcome

    @property
    def is_accused(self) -> bool:
        """Whether it is a reason why its test failed, or would have."""
        if not self.record.ending.accuses:
            return False
        # A setting may fail a test without a failing metric: by its worst outcome.
        outcome = self.outcome
        return outcome is self.record.outcome or bool(outcome and outcome.fails)

    @property
    def failed(self) -> bool:
        """Whether its test failed because of it."""
        return self.is_accused and self.record.ending is not Ending.WARNED

    @property
    def is_warned(self) -> bool:
        """Whether the failure is only a warning."""
        return self.is_accused and self.record.ending is Ending.WARNED

    @property
    def is_telling(self) -> bool:
        """Whether the outcome says what happened: a test can pass it and fail."""
        is_passed = self.is_accused and self.outcome in PASSABLE
        return self.worst is not None and not is_passed

    @property
    def word(self) -> str:
        """What it is counted as."""
        ending, outcome = self.record.ending, self.outcome
        if self.verdict is None or outcome is None or ending is Ending.DIED:
            return ending.value
        if not self.is_accused:
            return ending.value if outcome.fails else PEOPLE[outcome]
        return Ending.WARNED.value if ending is Ending.WARNED else Ending.FAILED.value

    @property
    def happened(self) -> str:
        """What happened, in capitals if that is a failure, or how the test ended."""
        outcome = self.outcome if self.is_telling else None
        if outcome and outcome.fails and self.worst:
            return what_happened(self.worst)
        ended = self.record.ending.value
        word = PEOPLE.get(outcome, ended) if outcome else ended
        return word.upper() if self.is_accused else word

    @property
    def worst(self) -> Verdict | None:
        """The verdict of the worst outcome that is furthest beyond its limit."""
        judged = self.verdict.verdicts if self.verdict else ()
        alike = [v for v in judged if v.outcome is self.outcome]
        return max(alike, key=excess, default=None)

    @property
    def failing(self) -> Sequence[Verdict]:
        """What failed it, or was inconclusive; nothing if all passed.

        Times, memory and syncs come first: what else grew is mostly why they did.
        """
        passing = {*PASSABLE, Outcome.IMPROVED}
        if self.verdict is None or self.verdict.outcome in passing:
            return ()
        worst = telling(self.verdict)
        return sorted(worst, key=lambda v: (_familiarity(v.metric), -excess(v)))

    @property
    def causes(self) -> Sequence[Finding]:
        """The causes of what failed, the worst first."""
        findings = self.verdict.findings if self.verdict else ()
        failing = {verdict.metric for verdict in self.failing}
        return sorted(causes_of(findings, failing), key=badness)

    @property
    def sentences(self) -> Sequence[str]:
        """What came of it, a line for each metric to look at, or what its test said."""
        if self.verdict is None or not self.is_telling:
            return [self.record.headline or self.happened]
        return [*_sentences(self.verdict)]


def judged_calls(results: Results, source: str) -> list[JudgedCall]:
    """Sort what came of a run: failures, the worst outcome, the largest excess first.

    Raises ``UsageError``, which names the *source*, where a verdict cannot be read.
    """
    calls = [
        call
        for test, record in results.tests.items()
        for call in _calls(test, record, source)
    ]
    return sorted(calls, key=_place)


def _calls(test: str, record: Record, source: str) -> Iterator[JudgedCall]:
    if not record.verdicts:
        yield JudgedCall(key=test, test=test, record=record)
    for call in record.verdicts:
        verdict = verdict_of(call, source)
        yield JudgedCall(key=verdict.test, test=test, record=record, verdict=verdict)


def _place(call: JudgedCall) -> tuple[bool, int, int, float]:
    # What failed without a metric that did comes behind the metrics.
    outcome = call.outcome if call.is_telling else None
    rank = list(Outcome).index(outcome) if outcome else len(Outcome)
    beyond = excess(call.worst) if call.worst else 0.0
    return not call.failed, WORST_FIRST_ENDINGS.index(call.word), rank, -beyond


def _familiarity(metric: str) -> int:
    """Return the place of a metric among those that people have a name for."""
    known = list(WORDS)
    return known.index(metric) if metric in known else len(known)


def _sentences(verdict: TestVerdict) -> Iterator[str]:
    """Say what failed, else what has the worst outcome. Of what passed, one is enough."""
    shown = telling(verdict)
    if verdict.outcome is Outcome.NO_BASELINE:
        asked = [v for v in shown if v.metric in ASKED_FIRST]
        yield no_baseline_headline(asked or shown)
        return
    shown = shown[:1] if verdict.outcome in PASSABLE else shown
    read = [v for v in shown if not v.is_missed]
    for judged, text in merged_headlines(read, is_short=True):
        because = judged.because if judged.now is None else ""
        yield ": ".join(filter(None, (text, because)))
    yield from missed_sentences(shown)
