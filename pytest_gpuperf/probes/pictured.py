"""From what is alive at the peak of a step to findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..devices.memory_picture import Picture
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.metric import MIB
from .where import where_of


MOST_HELD: Final = 5
"""Places that are named with what they hold at the peak."""

UNITS: Final = {"MiB": MIB, "KiB": 2**10}


def findings_of_picture(
    picture: Picture, metrics: tuple[str, ...]
) -> Iterator[Finding]:
    """Say where the peak of *metrics* is and what for, then what holds most of it."""
    yield peak_of_picture(picture, metrics)
    for held in picture.held[:MOST_HELD]:
        yield Finding(
            kind=FindingKind.MEMORY,
            op=held.op,
            api=None,
            per_step=held.blocks,
            blocked_ms=0.0,
            metrics=metrics,
            held_bytes=held.nbytes,
            **where_of(held.site),
        )


def peak_of_picture(picture: Picture, metrics: tuple[str, ...]) -> Finding:
    """Say where the peak of *metrics* is, and what is held there for what."""
    roles = sorted(picture.by_role.items(), key=lambda item: -item[1])
    told = ", ".join(f"{role.value} {_amount(nbytes)}" for role, nbytes in roles)
    return Finding(
        kind=FindingKind.PEAK,
        op=picture.op or None,
        api=None,
        per_step=1,
        blocked_ms=0.0,
        metrics=metrics,
        reason=told,
        held_bytes=sum(picture.by_role.values()),
        held_for=tuple((role.value, nbytes) for role, nbytes in roles),
        **(where_of(picture.site) if picture.site is not None else {}),
    )


def _amount(nbytes: int) -> str:
    """Write a tenth of a unit and more in it, to one digit behind the point."""
    for unit, size in UNITS.items():
        if 10 * nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"
