"""What the tests of one run say together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """Where a change that all tests share comes from."""

    MACHINE = "machine"
    CODE = "code"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteVerdict:
    """A change that the tests of one run share; it is said once, not once a test.

    ``moved`` of ``tests`` tests changed by more than the tolerance in the direction
    of ``shift``, the median change. ``sentinels`` is the change of the kernels that
    witness the machine, where there were any. Changes are ratios: 0.06 is 6 % slower.
    """

    tests: int
    moved: int
    shift: float
    sentinels: float | None
    cause: Cause
    because: str
