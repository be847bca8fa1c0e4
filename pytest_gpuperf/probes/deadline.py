"""The cap on what measuring one test may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A point on the device's host clock."""

    now_ns: Callable[[], int]
    at_ns: int

    @classmethod
    def after(cls, seconds: float, now_ns: Callable[[], int]) -> Deadline:
        return cls(now_ns=now_ns, at_ns=now_ns() + round(seconds * 1e9))

    def leaves(self, ms: float) -> bool:
        """Whether *ms* milliseconds of work still fit."""
        return self.now_ns() + ms * 1e6 <= self.at_ns
