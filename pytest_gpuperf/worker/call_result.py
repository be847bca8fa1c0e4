"""The result of ``gpuperf.compare``, which a test can assert on."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NoReturn

import pytest

from ..model.ab import AbResult, Comparison
from ..report.screen.comparison import (
    both_sides,
    comparison_lines,
    count_in_words,
    time_in_words,
    why_unmeasured,
)


@dataclass(frozen=True, slots=True, repr=False)
class TimeRatio:
    """The time of a step before, divided by that after.

    Reading a number that was not measured skips the test, with the reason.
    """

    sides: Comparison

    @property
    def speedup(self) -> float:
        """How many times as fast ``after`` is: 1.3, or 0.9 where it is slower."""
        __tracebackhide__ = True
        time = self._measured()
        return time.speedup if time.speedup is not None else _skip("time", time.why)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval; 0 if too little was measured for one."""
        __tracebackhide__ = True
        low = self._measured().least_speedup
        return 0.0 if low is None else low

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval; infinite where too little was measured."""
        __tracebackhide__ = True
        high = self._measured().most_speedup
        return inf if high is None else high

    @property
    def verdict(self) -> str:
        """What ``after`` is: ``slower``, ``faster``, ``same`` or ``inconclusive``."""
        __tracebackhide__ = True
        return self._measured().answer.value

    @property
    def why(self) -> str:
        """The sentence of the verdict, with its numbers."""
        __tracebackhide__ = True
        return self._measured().why

    def __repr__(self) -> str:
        return f"<{time_in_words(self.sides)}>"

    def _measured(self) -> AbResult:
        __tracebackhide__ = True
        if self.sides.time is None:
            _skip("time", self.sides.no_time)
        return self.sides.time


@dataclass(frozen=True, slots=True, repr=False)
class Difference:
    """An exact number of both sides, per step: bytes or a count.

    Reading one that was not measured skips the test, with the reason.
    """

    sides: Comparison
    name: str

    @property
    def before(self) -> int:
        __tracebackhide__ = True
        return self._measured()[0]

    @property
    def after(self) -> int:
        __tracebackhide__ = True
        return self._measured()[1]

    @property
    def difference(self) -> int:
        """``after`` less ``before``: below 0 is an improvement."""
        __tracebackhide__ = True
        before, after = self._measured()
        return after - before

    def __repr__(self) -> str:
        return f"<{self.name} {count_in_words(self.sides, self.name)}>"

    def _measured(self) -> tuple[int, int]:
        __tracebackhide__ = True
        both = both_sides(self.sides, self.name)
        if both is None:
            _skip(self.name, why_unmeasured(self.sides, self.name))
        _, before, after = both
        return before, after


@dataclass(frozen=True, slots=True, repr=False)
class Compared:
    """What ``gpuperf.compare(before, after)`` found: assert on it, or print it."""

    sides: Comparison

    @property
    def time(self) -> TimeRatio:
        """How many times as fast ``after`` is, with a 95 % interval and a verdict."""
        return TimeRatio(self.sides)

    @property
    def memory(self) -> Difference:
        """Peak memory in bytes: of the allocator, or of live tensors on ``cpu``."""
        return Difference(self.sides, "memory")

    @property
    def syncs(self) -> Difference:
        """How often a step makes the host wait for the device."""
        return Difference(self.sides, "syncs")

    @property
    def copies(self) -> Difference:
        """Copies between the device and ordinary (pageable) CPU memory."""
        return Difference(self.sides, "copies")

    @property
    def ops(self) -> Difference:
        """Operations that launch work on the device; on a GPU, the launches themselves."""
        return Difference(self.sides, "ops")

    def __repr__(self) -> str:
        return f"<comparison: {time_in_words(self.sides)}>"

    def __str__(self) -> str:
        return "\n".join(comparison_lines(self.sides))


def _skip(name: str, reason: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.skip(f"{name} was not measured: {reason}")
