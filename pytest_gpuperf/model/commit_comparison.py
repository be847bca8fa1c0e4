"""How two versions of a project compare, test by test."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .comparison import Answer
from .finding import Finding


class Turn(Enum):
    """Which way an exact metric went; ``VARIES`` where the runs of a side disagree."""

    WORSE = "worse"
    BETTER = "better"
    VARIES = "varies"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChange:
    """The time of a step, ``after`` divided by ``before`` where it is a ratio.

    ``low`` and ``high`` bound ``ratio`` with 95 % confidence, ``smallest`` is the
    slowdown, 0.03 for 3 %, that this much evidence would have shown nine times in ten;
    ``None`` where the evidence is too little to say. Times are the middle one of the
    runs. ``pairs`` of processes were the evidence, or ``steps`` of both sides in turns
    in one process, in ``seconds``.
    """

    answer: Answer
    why: str
    ratio: float
    low: float | None
    high: float | None
    smallest: float | None
    before_ms: float
    after_ms: float
    pairs: int
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactChange:
    """A count or size that differs; only a ``gated`` one can fail a comparison."""

    metric: str
    before: float
    after: float
    turn: Turn
    gated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChange:
    """One call of ``gpuperf(step)`` on both sides.

    ``no_time`` says why there is no ``time``; it was ``lost`` where the device has a
    clock. ``findings`` are those of ``after``. ``settled`` is false while another pair
    could change what is said. ``apart`` says why the time is not one of both versions in
    one process, where it is not and that was tried.
    """

    test: str
    pairs: int
    time: TimeChange | None = None
    no_time: str = ""
    lost: bool = False
    exact: tuple[ExactChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    settled: bool = True
    apart: str = ""

    @property
    def is_worse(self) -> bool:
        """Whether a regression is confirmed."""
        slower = self.time is not None and self.time.answer is Answer.SLOWER
        return slower or any(c.gated and c.turn is Turn.WORSE for c in self.exact)

    @property
    def is_better(self) -> bool:
        faster = self.time is not None and self.time.answer is Answer.FASTER
        return faster or any(c.gated and c.turn is Turn.BETTER for c in self.exact)

    @property
    def is_undecided(self) -> bool:
        unclear = self.time is not None and self.time.answer is Answer.INCONCLUSIVE
        return (
            self.lost
            or unclear
            or any(c.gated and c.turn is Turn.VARIES for c in self.exact)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncompared:
    """A test that could not be compared, and why; ``is_worse`` where ``after`` broke."""

    test: str
    why: str
    is_worse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitComparison:
    """Everything that came of comparing ``before`` with ``after``, two names."""

    before: str
    after: str
    device: str
    engine: str
    calls: tuple[CallChange, ...] = ()
    uncompared: tuple[Uncompared, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_worse(self) -> bool:
        worse = any(call.is_worse for call in self.calls)
        return worse or any(found.is_worse for found in self.uncompared)
