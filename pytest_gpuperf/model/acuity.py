"""How small a change of a time can be seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Acuity:
    """What five clean runs of one test can show, as ratios.

    ``scatter`` is the standard deviation from run to run, as the judge reckons with it;
    ``smallest`` the slowdown that is blamed with a probability of 90 %. A test is
    ``decidable`` if unchanged code passes with the same probability.
    """

    test: str
    scatter: float
    smallest: float
    tolerance: float
    decidable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteAcuity:
    """The same for all *tests* together, the noisiest first; their medians.

    ``advised`` is a project's tolerance with which more of them are decidable, and
    ``decidable_then`` says how many; ``None`` where none is needed or none helps.
    """

    tests: tuple[Acuity, ...]
    scatter: float
    smallest: float
    decidable: int
    advised: float | None = None
    decidable_then: int = 0
