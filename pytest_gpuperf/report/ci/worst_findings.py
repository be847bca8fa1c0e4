"""The findings of one run for readers elsewhere, the worst first."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...model.baseline import Refresh
from ...model.codec import decode
from ...model.finding import Finding
from ...model.run import Ending, Record, Results
from ...model.verdict import Outcome, TestVerdict, Verdict
from ..command import Invocation, refresh_command
from ..headline import (
    ASKED_FIRST,
    PEOPLE,
    excess,
    merged_headlines,
    missed_sentences,
    no_baseline_headline,
    telling as telling_verdicts,
    what_happened,
)
from ..remedies import remedy_of
from ..screen.findings import badness, explained, short, telling


_RANKS: Final = {outcome: rank for rank, outcome in enumerate(Outcome)}


def no_address(_file: str, _line: int) -> str:
    """Return that no page shows the line."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The files of a project as a CI service names them.

    ``is_ours`` returns whether a file, named from the rootdir on, belongs to the project.
    ``folder`` is the rootdir as seen from the repository, with a slash behind it, or
    nothing. ``address`` returns the page of a line, of a file named from the repository on,
    or nothing.
    """

    is_ours: Callable[[str], bool]
    folder: str = ""
    address: Callable[[str, int], str] = no_address

    def path(self, file: str) -> str:
        """Return *file*, or nothing of none, as it is named from the repository on."""
        return posixpath.normpath(f"{self.folder}{file}") if file else self.folder


class Remark(NamedTuple):
    """What to report on one metric of a test, or on a test without a judged metric.

    ``test`` names the call, if there was one, and ``node`` its test. A tuple, for there
    are many.
    """

    test: str
    node: str
    record: Record
    call: TestVerdict | None = None
    verdict: Verdict | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What was judged; ``None`` if the test ended by itself."""
        return self.verdict.outcome if self.verdict else self.record.outcome

    @property
    def word(self) -> str:
        """What happened, in capitals if that is a failure, or how the test ended."""
        outcome = self.outcome if self.is_telling else None
        if outcome and outcome.fails and self.verdict is not None:
            return what_happened(self.verdict)
        ended = self.record.ending.value
        word = PEOPLE.get(outcome, ended) if outcome else ended
        return word.upper() if self.fails else word

    @property
    def is_telling(self) -> bool:
        """Whether the outcome says what happened: a test can pass it and fail."""
        return not (self.fails and self.outcome in {Outcome.PASS, Outcome.NOT_CHECKED})

    @property
    def fails(self) -> bool:
        """Whether it is a reason why the test failed, or would have."""
        if not self.record.ending.accuses:
            return False
        # A setting may fail a test without a failing metric; then its worst outcome is
        # the reason.
        outcome, worst = self.outcome, self.record.outcome
        if outcome is None or worst is None or not worst.fails:
            return outcome is worst
        return outcome.fails

    @property
    def is_warned(self) -> bool:
        """Whether the failure is only a warning."""
        return self.fails and self.record.ending is Ending.WARNED

    @property
    def metric(self) -> str:
        return self.verdict.metric if self.verdict else ""


def remarks(results: Results) -> list[Remark]:
    """Return at least one remark a test: failures first, then by outcome and change."""
    found = [
        remark for test, record in results.tests.items() for remark in _of(test, record)
    ]
    return sorted(found, key=_badness)


def _of(test: str, record: Record) -> Iterator[Remark]:
    if not record.verdicts:
        yield Remark(test, test, record)
    for raw in record.verdicts:
        call = decode(TestVerdict, raw)
        found = [Remark(call.test, test, record, call, v) for v in call.verdicts]
        worse = {r.metric for r in found if r.outcome is Outcome.REGRESSED}
        failing = [
            r
            for r in found
            if r.outcome is Outcome.REGRESSED
            # The limit that it is over as well is named with what was stored.
            or (r.outcome is Outcome.OVER_BUDGET and r.metric not in worse)
        ]
        if failing or not found:
            yield from failing or [Remark(call.test, test, record, call)]
        else:
            yield next(r for r in found if r.outcome is call.outcome)


def _badness(remark: Remark) -> tuple[bool, bool, int, float, str]:
    """Metrics that failed a test come before tests that failed by themselves."""
    outcome = remark.outcome if remark.is_telling else None
    rank = _RANKS[outcome] if outcome else len(_RANKS)
    beyond = excess(remark.verdict) if remark.verdict else 0.0
    return not remark.fails, remark.is_warned, rank, -beyond, remark.test


def sentence(remark: Remark) -> str:
    """Say it in one line: ``SLOWER: 12.00 ms per step, was 10.00 ms (+20.0 %)``."""
    verdict, call = remark.verdict, remark.call
    if verdict is None or verdict.now is None or call is None or not remark.is_telling:
        return remark.record.headline or remark.word
    if remark.outcome is Outcome.NO_BASELINE:
        return no_baseline_headline(_shown(call))
    judged = [verdict, *(v for v in call.verdicts if v.metric == remark.metric)]
    return next(text for _, text in merged_headlines(judged, is_short=True))


def sentences(verdict: TestVerdict) -> Iterator[str]:
    """Say in a line of each metric to look at what came of it, as the terminal does.

    Those that failed, else those of the worst outcome. Of what passed, one is enough.
    """
    shown = _shown(verdict)
    if verdict.outcome is Outcome.NO_BASELINE:
        yield no_baseline_headline(shown)
        return
    read = [v for v in shown if not v.is_missed]
    for judged, text in merged_headlines(read, is_short=True):
        because = judged.because if judged.now is None else ""
        yield ": ".join(filter(None, (text, because)))
    yield from missed_sentences(shown)


def _shown(verdict: TestVerdict) -> Sequence[Verdict]:
    shown = telling_verdicts(verdict)
    if verdict.outcome in {Outcome.PASS, Outcome.NOT_CHECKED}:
        return shown[:1]
    if verdict.outcome is Outcome.NO_BASELINE:
        return [v for v in shown if v.metric in ASKED_FIRST] or shown
    return shown


# Where to look, and what to do there.


def advice(remark: Remark, is_ours: Callable[[str], bool]) -> str:
    """Say what happens on the line that is to blame, and what to do about it."""
    worst = _cause(remark, is_ours)
    if worst is None:
        return ""
    remedy = remedy_of(worst)
    fix = f"; fix: {remedy.do}" if remedy else ""
    # The reader is at the line, unless it is in a library.
    at = None if _is_shown(worst, is_ours) else short(worst.location)
    return f"{f'{at.file}:{at.line}: ' if at else ''}{explained(worst)}{fix}"


def stored_by(remark: Remark, invocation: Invocation) -> str:
    """Name the command that stores a missing baseline, as it is typed outside of CI."""
    if remark.outcome is not Outcome.NO_BASELINE:
        return ""
    why = "a missing baseline fails if CI is set"
    why = why if remark.fails else "nothing was checked"
    command = refresh_command(Refresh.MISSING, invocation, [remark.node])
    return f"{why}; store one outside of CI and commit it: {command}"


def place(remark: Remark, is_ours: Callable[[str], bool]) -> tuple[str, int]:
    """Return the file and line to look at: what waits or copies, else the test.

    *is_ours* returns whether a file belongs to the project.
    """
    cause = _cause(remark, is_ours)
    if cause and cause.location and _is_shown(cause, is_ours):
        return cause.location.file, cause.location.line
    file, _, line = remark.record.where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (remark.record.where, 1)


def has_cause(remark: Remark, is_ours: Callable[[str], bool]) -> bool:
    """Whether the ``place`` is the line to blame, and not that of the test."""
    cause = _cause(remark, is_ours)
    return cause is not None and _is_shown(cause, is_ours)


def _cause(remark: Remark, is_ours: Callable[[str], bool]) -> Finding | None:
    """Return the worst finding that counts in the metric, one of the project if it can."""
    if remark.call is None or remark.outcome is Outcome.NO_BASELINE:
        return None
    counting = [
        finding
        for finding in remark.call.findings
        if remark.metric in finding.metrics and finding.location
    ]
    found = list(telling(counting))
    own = [finding for finding in found if _is_shown(finding, is_ours)]
    return min(own or found, key=badness, default=None)


def _is_shown(finding: Finding, is_ours: Callable[[str], bool]) -> bool:
    at = finding.location
    return at is not None and at.exact and is_ours(at.file)
