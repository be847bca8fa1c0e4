"""A cause with its location."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FindingKind(Enum):
    """What was found."""

    SYNC = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of source. ``exact`` is false where only the function is known."""

    file: str
    line: int
    function: str
    exact: bool = True

    def __str__(self) -> str:
        where = f"{self.file}:{self.line} in {self.function}"
        return where if self.exact else f"{where} (line of the def)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause seen ``per_step`` times a step, which blocked the host ``blocked_ms`` of it."""

    kind: FindingKind
    op: str | None
    api: str | None
    per_step: int
    blocked_ms: float
    location: Location | None = None
