"""Which way times were compared, why that one, and what it could have seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..model.commit_comparison import CallChange
from ..model.commit_comparison import TimeChange


PAIRS: Final = (
    "pairs of fresh processes in alternating order; a process has lasting luck, so a "
    'pair is one number; "sees" is the smallest slowdown that these would have shown '
    "9 times in 10"
)

NO_CLOCK: Final = "pairs of fresh processes, for what is exact alone"

TOGETHER: Final = (
    "times by both versions in turns in one process, whose luck they share; "
    '"sees" is the smallest slowdown that so many steps would have shown 9 times in 10'
)

EXACT: Final = "what is exact by pairs of fresh processes"

APART: Final = "compared in pairs of processes, as one cannot hold both"


def engine_in_words(calls: Sequence[CallChange]) -> str:
    """Say how *calls* were compared, up to the number of pairs, which comes next."""
    times = [call.time for call in calls if call.time is not None]
    shared = [time for time in times if time.steps]
    if calls and not times:
        return f"{NO_CLOCK}: {calls[0].no_time}"
    if not shared:
        return PAIRS
    told = f"{TOGETHER}; {_effort(shared)}"
    if len(shared) < len(times):
        rest = f"{len(times) - len(shared)} of {len(times)} tests"
        return f"{told}; {rest}, and {EXACT}"
    return f"{told}; {EXACT}"


def _effort(times: Sequence[TimeChange]) -> str:
    steps = _span([f"{time.steps}" for time in sorted(times, key=lambda t: t.steps)])
    seconds = _span(
        [f"{time.seconds:.1f}" for time in sorted(times, key=lambda t: t.seconds)]
    )
    return f"{steps} steps in {seconds} s a test"


def _span(ascending: Sequence[str]) -> str:
    least, most = ascending[0], ascending[-1]
    return least if least == most else f"{least} to {most}"


def apart_in_words(calls: Sequence[CallChange]) -> list[str]:
    """Say why one process could not hold both: once, if all have the same reason."""
    reasons = {call.test: call.apart for call in calls if call.apart}
    if len(reasons) == len(calls) and len(set(reasons.values())) == 1:
        return [f"{APART}: {next(iter(reasons.values()))}"]
    return [f"{test}: {APART}: {reason}" for test, reason in reasons.items()]
