"""What a copy between host and device is, in words and in metrics."""

from __future__ import annotations

from typing import Final

from ..devices.pretend.record import Direction
from ..model.metric import BLOCKING_COPIES
from ..model.metric import D2H_BYTES
from ..model.metric import H2D_BYTES
from ..model.metric import PAGEABLE_COPIES


BYTES: Final = {Direction.H2D: H2D_BYTES.name, Direction.D2H: D2H_BYTES.name}

MEMORY: Final = {True: "pinned memory", False: "pageable memory", None: "the host"}
"""The host's side of a copy; ``None`` where nobody says what it is."""


def counted_in(
    direction: Direction, *, pinned: bool | None, blocking: bool
) -> tuple[str, ...]:
    """Name the metrics that such a copy counts in."""
    pageable = (PAGEABLE_COPIES.name,) if pinned is False else ()
    waited_for = (BLOCKING_COPIES.name,) if blocking else ()
    return (BYTES[direction], *pageable, *waited_for)


def described(direction: Direction, *, pinned: bool | None) -> str:
    """Say where the bytes come from and where they go."""
    if direction is Direction.H2D:
        return f"from {MEMORY[pinned]} to the device"
    return f"from the device to {MEMORY[pinned]}"
