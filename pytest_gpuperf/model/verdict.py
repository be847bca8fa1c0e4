"""An outcome, its reason and its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from enum import Enum
from typing import Final

from .comparison import Sides
from .diagnosis import Diagnosis
from .evidence import Evidence
from .finding import Finding
from .settlement import Settlement


class Outcome(Enum):
    """What the judge says. Members stand from worst to best."""

    REGRESSED = "regressed"
    OVER_BUDGET = "over budget"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no baseline"
    IMPROVED = "improved"
    PASS = "pass"
    NOT_JUDGED = "not judged"

    @property
    def fails(self) -> bool:
        """Whether the test that got it fails, whatever the settings."""
        return self in {Outcome.REGRESSED, Outcome.OVER_BUDGET}


_ORDER: Final = list(Outcome)


def worst_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the worst of *outcomes*, one that was judged if any was."""
    found = set(outcomes)
    judged = found - {Outcome.NO_BASELINE, Outcome.NOT_JUDGED}
    return min(judged or found, key=_ORDER.index, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one metric of one test.

    ``now``, ``baseline`` and ``limit`` are in the metric's unit. ``settled`` is false
    while another run could change the outcome. ``environment_changed`` says that the
    number moved together with the software it was read on. ``evidence`` stands beside
    verdicts on times by budgets and baselines, ``settlement`` beside one that was
    referred to other code.
    """

    metric: str
    outcome: Outcome
    because: str
    now: float | None = None
    baseline: float | None = None
    limit: float | None = None
    settled: bool = True
    environment_changed: bool = False
    evidence: Evidence | None = None
    settlement: Settlement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestVerdict:
    """The judgement of one test: a verdict a metric, and what explains them.

    ``changed`` maps a piece of software to its versions then and now. ``remarks`` say
    what else must be known to read the numbers. ``snapshot`` is the file that says what
    the allocator did, if that was recorded, ``trace`` that of a few traced steps. ``sides``
    is what two steps showed that were compared: without a budget such a test has no
    verdict, and nothing fails. ``diagnosis`` is what the step waits for.
    """

    __test__ = False  # pytest would collect a class of this name

    test: str
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...] = ()
    runs: int = 0
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    snapshot: str = ""
    trace: str = ""
    sides: Sides | None = None
    diagnosis: Diagnosis | None = None

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its judged metrics.

        NO_BASELINE and NOT_JUDGED are a test's outcome only where nothing was judged. A
        comparison that nobody set a budget for passes.
        """
        if self.sides is not None and not self.verdicts:
            return Outcome.PASS
        return worst_of(v.outcome for v in self.verdicts) or Outcome.NOT_JUDGED

    @property
    def settled(self) -> bool:
        """Whether no further run can change the outcome."""
        return all(v.settled for v in self.verdicts)
