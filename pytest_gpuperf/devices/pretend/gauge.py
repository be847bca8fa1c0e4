"""One of the quantities that torch's allocator keeps count of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Gauge:
    """What it is now, the most it was, and all that ever came and went."""

    now: int = 0
    peak: int = 0
    come: int = 0
    gone: int = 0

    def rise(self, amount: int) -> None:
        """Count *amount* that came."""
        self.come += amount
        self.now += amount
        self.peak = max(self.peak, self.now)

    def fall(self, amount: int) -> None:
        """Count *amount* that went."""
        self.gone += amount
        self.now -= amount

    def reset_peak(self) -> None:
        """Let the peak start at what is now."""
        self.peak = self.now

    def reset_sums(self) -> None:
        """Forget what came and went."""
        self.come = self.gone = 0
