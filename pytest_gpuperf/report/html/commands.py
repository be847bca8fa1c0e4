"""What to type next, to be copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...model.environment import Hardware
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ..command import ab_command
from ..command import accept_command
from .markup import Markup
from .markup import tag


ACCEPTABLE: Final = frozenset(
    {
        Outcome.REGRESSED,
        Outcome.INCONCLUSIVE,
        Outcome.NO_BASELINE,
        Outcome.IMPROVED,
    }
)
"""Outcomes that end when the numbers of this run are the baseline."""


def commands(
    verdict: TestVerdict, test: str, hardware: Hardware | None, *, pending: bool
) -> Iterator[Markup]:
    """Yield how to compare again, and how to accept what is *pending*."""
    settled = [v.settlement for v in verdict.verdicts if v.settlement]
    commits = [s.commit for s in settled if s.time is not None]
    if commits:
        yield _command(
            "Compare again with the other code", ab_command(commits[0], (), test)
        )
    outcomes = {v.outcome for v in verdict.verdicts}
    if Outcome.OVER_BUDGET in outcomes:
        yield tag(
            "p",
            "The budget stands in the test's mark or call; accepting does not move it.",
        )
    if hardware is not None and pending and outcomes & ACCEPTABLE:
        pending_file = f".gpuperf/pending-{hardware.key}.json"
        command = accept_command(pending_file, "", [verdict.test])
        yield _command("Accept these numbers as the baseline", command)


def _command(title: str, command: str) -> Markup:
    return tag("div", tag("h3", title), tag("pre", command, class_="command"))
