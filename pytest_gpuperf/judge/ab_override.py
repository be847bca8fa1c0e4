"""Replaces the verdict of a baseline by that of an A/B against other code.

A stored number was measured on another day; the other code runs now, on this machine.
So its answer takes the place of the baseline's. Budgets are ceilings, and stay. Software
that changed since the baseline slows both sides: then the answer acquits nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..model.ab import AbResult
from ..model.ab import Answer
from ..model.ab import ReferenceResult
from ..model.metrics import STEP_MS
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from ..model.verdict import Verdict


DOUBTFUL: Final = frozenset(
    {Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.NO_BASELINE}
)

SETTLED_AS: Final = {
    Answer.SLOWER: Outcome.REGRESSED,
    Answer.FASTER: Outcome.IMPROVED,
    Answer.SAME: Outcome.PASS,
}


def is_in_doubt(verdict: TestVerdict) -> bool:
    """Whether the baseline does not pass the time of a step, or there is none."""
    return any(map(_is_doubtful, verdict.verdicts))


def is_undecided(verdict: TestVerdict) -> bool:
    """Whether the baseline leaves the time undecided, and nothing else blames the test."""
    if any(one.outcome.fails for one in verdict.verdicts):
        return False
    return any(
        _is_of_baseline(one) and one.outcome is Outcome.INCONCLUSIVE
        for one in verdict.verdicts
    )


def referred(verdict: TestVerdict, settlement: ReferenceResult | None) -> TestVerdict:
    """Replace the verdict on the time by *settlement*, if there is one.

    If it settled nothing, the baseline's verdict is kept and the reason is added.
    """
    if settlement is None:
        return verdict
    if settlement.time is None:
        kept = tuple(_unsettled(v, settlement) for v in verdict.verdicts)
        return replace(verdict, verdicts=kept)
    decided = tuple(
        _settled(v, settlement, settlement.time, verdict.changed)
        if _is_of_baseline(v)
        else v
        for v in verdict.verdicts
    )
    remarks = [
        f"{v.metric}: {v.because}"
        for v in decided
        if v.settlement is not None
        and v.outcome is Outcome.PASS
        and not v.settlement.unasked
    ]
    return replace(verdict, verdicts=decided, remarks=(*verdict.remarks, *remarks))


def _is_of_baseline(verdict: Verdict) -> bool:
    """Whether it judges the time of a step by a baseline, or by none."""
    unjudged = verdict.outcome is Outcome.NO_BASELINE
    return verdict.metric == STEP_MS.name and (unjudged or verdict.baseline is not None)


def _is_doubtful(verdict: Verdict) -> bool:
    return _is_of_baseline(verdict) and verdict.outcome in DOUBTFUL


def _unsettled(verdict: Verdict, settlement: ReferenceResult) -> Verdict:
    if not _is_doubtful(verdict):
        return verdict
    against = f" against {settlement.reference}" if settlement.reference else ""
    because = f"{verdict.because}; not decided by A/B{against}: {settlement.why}"
    return replace(verdict, because=because, settlement=settlement)


def _settled(
    verdict: Verdict,
    settlement: ReferenceResult,
    time: AbResult,
    changed: Mapping[str, tuple[str, str]],
) -> Verdict:
    outcome = SETTLED_AS.get(time.answer, Outcome.INCONCLUSIVE)
    engine = settlement.engine.partition(";")[0]
    said = f"A/B against {settlement.reference}, {engine}: {time.why}"
    stored = verdict.outcome is not Outcome.NO_BASELINE
    judged = replace(verdict, settled=True, evidence=None, settlement=settlement)
    if outcome is Outcome.PASS:
        # Both sides ran on today's software, so an A/B cannot see what that costs.
        in_dispute = stored and bool(changed)
        return replace(
            judged,
            outcome=Outcome.INCONCLUSIVE if in_dispute else outcome,
            because=f"{said}; {_moral(settlement, changed, stored=stored)}",
        )
    return replace(
        judged,
        outcome=outcome,
        because=said,
        now=time.after_ms,
        baseline=time.before_ms,
        limit=None,
    )


def _moral(
    settlement: ReferenceResult, changed: Mapping[str, tuple[str, str]], *, stored: bool
) -> str:
    """Say what moved if it was not the code, and what is to be done about it.

    Both sides run on the software of today: a comparison cannot see what that costs.
    """
    if not stored:
        return "it has no baseline: record one"
    if changed:
        return (
            "not the code, but the machine or its software changed since the baseline "
            "was recorded: refresh it if the change is intended"
        )
    if settlement.unasked:
        return "its stored runs alone could not decide"
    if settlement.recorded:
        return (
            "the machine changed since the baseline was recorded, not the code: refresh "
            "it here"
        )
    return (
        "the baseline is out of date, and not by this change: the machine changed, or "
        "the code had before it; refresh it here"
    )
