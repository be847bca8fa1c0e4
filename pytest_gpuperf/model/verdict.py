"""An outcome, its reason and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from .ab import Comparison
from .codec import RARELY
from .finding import Finding, LineChange
from .metrics import STEP_MS, Metric


# The smallest change of a time that can be detected.


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectableChange:
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
    ``decidable_then`` says how many; ``None`` if none is needed or none helps.
    """

    tests: tuple[DetectableChange, ...]
    scatter: float
    smallest: float
    decidable: int
    advised: float | None = None
    decidable_then: int = 0


# The numbers that a verdict on a time rests on.


class DecidedBy(Enum):
    """Which rule decided, or which reason kept every rule from deciding."""

    UPPER_BOUND = "upper bound"
    T_AND_RANK = "t and rank"
    FAR = "far beyond"
    BOUND = "bound of disturbed runs"
    BUDGET = "budget"
    MORE_RUNS = "more runs"
    TOO_FEW_STORED = "too few stored runs"
    SESSIONS = "between sessions"
    DIRTY = "dirty"
    SUITE_SHIFT = "suite-wide shift"
    ENVIRONMENT = "environment"
    NOISE = "noise"
    HOLM = "holm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the runs of one test say about one time, against a baseline or a budget.

    All but the counts and probabilities are ratios: 0.034 is 3.4 % slower. ``low``
    and ``high`` bound ``estimate`` with 95 % confidence. ``tolerance`` and ``detect``
    are those that applied, the absolute floor included. ``runs`` counts the fresh runs
    that were used; it is 0 if all were disturbed and slow, the estimate is then
    theirs. ``smallest_detectable`` is the slowdown that five clean runs would have
    blamed with a probability of 90 %. ``discount`` is what the machine itself seems to
    have moved: positive where it was slower, which is taken off before code is blamed,
    negative where it was faster, which is added before code passes.
    ``p_regressed`` and ``p_improved`` are the chances of such runs if nothing had
    changed by more than the tolerance; ``None`` while runs are too few to blame.
    """

    estimate: float
    low: float
    high: float
    tolerance: float
    detect: float
    runs: int
    stored_runs: int
    smallest_detectable: float
    discount: float = 0.0
    p_regressed: float | None = None
    p_improved: float | None = None
    rule: DecidedBy


# Facts about all tests of one run together.


class ShiftCause(Enum):
    """Where a change that all tests share comes from."""

    MACHINE = "machine"
    CODE = "code"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteVerdict:
    """A change that the tests of one run share; it is said once, not once a test.

    ``moved`` of ``tests`` tests changed by more than the tolerance in the direction
    of ``shift``, the median change. ``sentinels`` is the change of the kernels that
    show the machine's speed, if there were any. Changes are ratios: 0.06 is 6 % slower.
    """

    tests: int
    moved: int
    shift: float
    sentinels: float | None
    cause: ShiftCause
    because: str


class Outcome(Enum):
    """What the judge says. Members are ordered from worst to best."""

    REGRESSED = "regressed"
    OVER_BUDGET = "over budget"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no baseline"
    IMPROVED = "improved"
    PASS = "pass"
    NOT_CHECKED = "not checked"

    @property
    def fails(self) -> bool:
        """Whether the test that got it fails, whatever the settings."""
        return self in {Outcome.REGRESSED, Outcome.OVER_BUDGET}


_ORDER: Final = list(Outcome)


def worst_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the worst of *outcomes*, one that was judged if any was."""
    found = set(outcomes)
    # Any judged metric says more about a test than one that could not be judged.
    judged = found - {Outcome.NO_BASELINE, Outcome.NOT_CHECKED}
    return min(judged or found, key=_ORDER.index, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one metric of one test.

    ``now``, ``baseline`` and ``limit`` are in the metric's unit. ``settled`` is false
    while another run could change the outcome, and ``proving`` says that every run so far
    speaks for blame, so that the others are made whatever they cost.
    ``environment_changed`` says that the number moved together with the software it was
    read on. ``evidence`` belongs to verdicts on times by budgets and baselines.
    ``unchecked_budget`` says that a budget asks for a number that this device can measure
    and no run has, ``not_stored`` that the test has a baseline which lacks this metric.
    Of ``now`` and ``baseline`` cuBLAS keeps ``workspace_bytes`` and
    ``stored_workspace_bytes`` for itself, ``None`` where nobody recorded that.
    """

    metric: str
    outcome: Outcome
    because: str
    now: float | None = None
    baseline: float | None = None
    limit: float | None = None
    settled: bool = True
    proving: bool = False
    environment_changed: bool = False
    evidence: Evidence | None = None
    unchecked_budget: bool = False
    not_stored: bool = False
    workspace_bytes: int = 0
    stored_workspace_bytes: int | None = None

    def moved_by(self, amount: float) -> Verdict:
        """Return it with *amount* added to each of its numbers."""
        now, baseline, limit = (
            value if value is None else value + amount
            for value in (self.now, self.baseline, self.limit)
        )
        return replace(self, now=now, baseline=baseline, limit=limit)

    @property
    def own(self) -> Verdict:
        """The same of the step's own bytes, unless a budget limits or a change has others."""
        is_budgeted = self.baseline is None and self.limit is not None
        has_moved = self.workspace_bytes != self.stored_workspace_bytes
        if is_budgeted or (self.baseline is not None and has_moved):
            return self
        return self.moved_by(-self.workspace_bytes)

    @property
    def own_bytes(self) -> tuple[float | None, float | None]:
        """The step's own part of ``now`` and of ``baseline``, each as far as it is known."""
        kept = self.workspace_bytes
        now = None if self.now is None else self.now - kept
        then = self.stored_workspace_bytes
        if self.baseline is None or (then is None and kept):
            return now, None
        return now, self.baseline - (then or 0)

    @property
    def is_missed(self) -> bool:
        """Whether there is neither a number nor a limit that asks for one."""
        return (
            self.outcome is Outcome.INCONCLUSIVE
            and self.now is None
            and self.limit is None
            and not self.unchecked_budget
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TestVerdict:
    """The judgement of one test: a verdict a metric, and what explains them.

    ``changed`` maps a piece of software to its versions then and now. ``remarks`` say
    what else must be known to read the numbers. ``snapshot`` is the file that says what
    the allocator did, if that was recorded, ``trace`` that of a few traced steps. ``sides``
    is what two steps showed that were compared: without a budget such a test has no
    verdict, and nothing fails. ``rates`` are
    what the author asked for with ``samples=`` or ``tokens=``, each by its metric, if no
    budget limits it: it has a verdict otherwise. ``operations`` are the lines that run
    others than when the baseline was recorded, of a test that failed. ``recorded`` is the
    commit with the code of its baseline, of one that did not pass its time.
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
    sides: Comparison | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    operations: tuple[LineChange, ...] = field(default=(), metadata=RARELY)
    recorded: str = field(default="", metadata=RARELY)

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its judged metrics.

        NO_BASELINE and NOT_CHECKED are a test's outcome only where nothing was judged. A
        comparison that nobody set a budget for passes.
        """
        if self.sides is not None and not self.verdicts:
            return Outcome.PASS
        return worst_of(v.outcome for v in self.verdicts) or Outcome.NOT_CHECKED

    @property
    def settled(self) -> bool:
        """Whether no further run can change the outcome."""
        return all(v.settled for v in self.verdicts)

    @property
    def has_open_time(self) -> bool:
        """Whether its baseline blames the time of a step, or leaves it inconclusive."""
        return any(
            v.metric == STEP_MS.name
            and v.baseline is not None
            and v.outcome in {Outcome.REGRESSED, Outcome.INCONCLUSIVE}
            for v in self.verdicts
        )

    def measured(self, metric: Metric) -> Verdict | None:
        """Return what was judged of *metric* with a number, by its baseline if it was."""
        judged = (v for v in self.verdicts if v.metric == metric.name)
        known = (v for v in judged if v.now is not None)
        # A budget's verdict has the number, but nothing to compare with.
        return min(known, key=lambda v: v.baseline is None, default=None)
