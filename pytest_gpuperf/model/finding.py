"""A cause with its location."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .metric import SYNCS


class FindingKind(Enum):
    """What was found."""

    SYNC = "sync"
    """The host waits for the device."""
    COPY = "copy"
    """The host waits inside a copy, which returns only when it is done."""
    MAYBE = "maybe"
    """Whether the host waits cannot be told without a GPU; never counted."""
    TRANSFER = "transfer"
    """Bytes go between host and device, whether or not anybody waits for them."""
    BREAK = "break"
    """torch.compile ends a graph here, or leaves the function to Python."""
    RECOMPILE = "recompile"
    """torch.compile compiles this function once more."""
    PEAK = "peak"
    """Most device memory is allocated here; the reason says what for."""
    MEMORY = "memory"
    """Device memory taken here is held at the peak; before the step, if nowhere."""


class Phase(Enum):
    """Part of a training step in which something happened."""

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of source. ``exact`` is false where only the function is known."""

    file: str
    line: int
    function: str
    exact: bool = True

    def __str__(self) -> str:
        where = f"{self.file}:{self.line} in {self.function}"
        return where if self.exact else f"{where} (line unknown, this is the def)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause seen ``per_step`` times a step, which blocked the host ``blocked_ms`` of it.

    ``metrics`` names the metrics it counts in. ``location`` is the innermost line of
    the project, ``innermost`` the innermost one outside of torch where that is another,
    ``forward`` the line whose backward was at work. ``reason`` says why the host waits
    or would, ``allowed`` why its author lets it: then it counts in nothing.
    ``moved_bytes`` is what its copies carry in a step, ``held_bytes`` the device memory
    it holds at the peak, in ``per_step`` blocks. A peak says what for in ``held_for``:
    bytes by purpose.
    """

    kind: FindingKind
    op: str | None
    api: str | None
    per_step: int
    blocked_ms: float
    location: Location | None = None
    metrics: tuple[str, ...] = (SYNCS.name,)
    reason: str = ""
    phase: Phase | None = None
    innermost: Location | None = None
    forward: Location | None = None
    allowed: str | None = None
    moved_bytes: int = 0
    held_bytes: int = 0
    held_for: tuple[tuple[str, int], ...] = ()
