"""What sets a run apart from the stored ones, so that its times must not blame code."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from ..model.baseline import RunSummary
from ..model.measurement import Board
from ..model.measurement import Measurement


CLOCK_RATIO: Final = 0.015
"""Difference of the SM clock from the usual one that a time would show."""

ELSEWHERE: Final = (
    "measured on another GPU of this model than the baseline, and two of them differ by "
    "several percent"
)


def guarded(
    runs: Sequence[Measurement], entry_runs: Sequence[RunSummary]
) -> list[Measurement]:
    """Call each of *runs* dirty whose board is not the stored ones' or clocks otherwise."""
    stored = [run.board for run in entry_runs]
    return [
        replace(run, dirty=(*run.dirty, *_reasons(run.board, stored))) for run in runs
    ]


def _reasons(board: Board, stored: Sequence[Board]) -> Iterator[str]:
    known = {then.gpu for then in stored if then.gpu}
    if board.gpu and known and board.gpu not in known:
        yield ELSEWHERE
    clocks = [then.sm_mhz for then in stored if then.sm_mhz]
    if board.sm_mhz and clocks:
        usual = median(clocks)
        if abs(board.sm_mhz / usual - 1) > CLOCK_RATIO:
            yield f"the SM clock was {board.sm_mhz} MHz, {usual:.0f} MHz with the baseline"
