"""Whether a run that waited for a core was in somebody's way, or in its own."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from ..devices.protocol import Device


CONTENTION: Final = 0.05
"""Share of a run spent waiting for a core above which its times are not blamed on code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time, and what other programs have computed by then, if that is known."""

    now_ns: int
    others_ns: int | None


def moment_of(device: Device) -> Moment:
    """Read both from *device*."""
    return Moment(now_ns=device.now_ns(), others_ns=device.others_ns())


def others_share(before: Moment, after: Moment) -> float | None:
    """Return what others computed in between, as a share of one core."""
    spent_ns = after.now_ns - before.now_ns
    if before.others_ns is None or after.others_ns is None or spent_ns <= 0:
        return None
    return max(0, after.others_ns - before.others_ns) / spent_ns


def doubts(shares: Sequence[float], others: float | None) -> Iterator[str]:
    """Doubt a run whose rounds waited for a core for these *shares* of their time.

    Unless nobody else had one: then it waited for processes of its own, the workers of a
    loader, and would anywhere.
    """
    alone = others is not None and others <= CONTENTION
    if shares and fmean(shares) > CONTENTION and not alone:
        yield f"the process waited for a core over {CONTENTION:.0%} of the time"
