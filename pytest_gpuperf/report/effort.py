"""What a precision costs and where it cannot be had, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from math import ceil

from ..model.baseline import FULL_RUNS
from ..model.effort import Effort
from .acuity import percent
from .wrapping import wrapped


def fresh_text(
    precision: float,
    judged: Sequence[Effort],
    undecided: Sequence[Effort],
    seconds: float,
) -> str:
    """Say what the *undecided* of all *judged* tests will cost: so many *seconds* at most."""
    floors = [effort.floor for effort in judged if not effort.reached]
    better = sum(floor <= precision for floor in floors)
    parts = [_fresh_runs(undecided, seconds), *_unreached(precision, floors)]
    if better:
        parts.append(
            f"{_tests(better)} can reach it once a refresh that asks for it has stored "
            "more runs"
        )
    return _sentence(precision, parts)


def stored_text(precision: float, recorded: Sequence[Effort], seconds: float) -> str:
    """Say what tests will cost of which a refresh has *recorded* eight runs already."""
    reached = [effort for effort in recorded if effort.reached]
    more = [e.stored - FULL_RUNS for e in reached if e.stored > FULL_RUNS]
    floors = [effort.floor for effort in recorded if not effort.reached]
    parts = list(_unreached(precision, floors))
    if more:
        runs = f"{_span(more)} more run{'s' if max(more) > 1 else ''}"
        parts.insert(0, f"{runs} of {_tests(len(more))}, {duration(seconds)} to go")
    elif reached:
        parts.insert(
            0, f"{FULL_RUNS} stored runs are enough for {_tests(len(reached))}"
        )
    return _sentence(precision, parts)


def duration(seconds: float) -> str:
    """Write seconds as ``about 40 s`` or ``about 3 min 20 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes} min {rest} s" if minutes else f"about {rest} s"


def _sentence(precision: float, parts: Sequence[str]) -> str:
    told = f"gpuperf: precision {100 * precision:.3g} %: {'; '.join(parts)}"
    return "\n".join(wrapped(told))


def _fresh_runs(undecided: Sequence[Effort], seconds: float) -> str:
    if not undecided:
        return "no test needs another run"
    runs = max(effort.fresh for effort in undecided)
    count = f"{len(undecided)} undecided test{'s' if len(undecided) > 1 else ''}"
    return f"up to {runs} fresh runs of {count}, {duration(seconds)} at most"


def _unreached(precision: float, floors: Sequence[float]) -> Iterator[str]:
    hopeless = [floor for floor in floors if floor > precision]
    if hopeless:
        whose = "its floor is" if len(hopeless) == 1 else "their floor is"
        low, high = _upward(min(hopeless)), _upward(max(hopeless))
        floor = high if low == high else f"{low} to {high}"
        yield (
            f"{_tests(len(hopeless))} cannot reach it on this machine, {whose} {floor}"
        )


def _upward(ratio: float) -> str:
    """Write a floor so that asking for what is written is not too much."""
    digits = 3 if ratio < 0.0995 else 2  # noqa: PLR2004  as ``percent`` shows it
    return percent(ceil(ratio * 10**digits - 1e-9) / 10**digits)


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"


def _tests(count: int) -> str:
    return f"{count} test{'s' if count > 1 else ''}"
