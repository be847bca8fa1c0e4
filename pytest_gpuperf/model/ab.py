"""A/B: two steps, or two versions of a project, by their times, counts and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import prod

from .codec import RARELY
from .finding import Finding, LineChange
from .metrics import SPEEDUP, STEP_MS


class Answer(Enum):
    """What a comparison says of ``after``, seen from ``before``.

    ``MORE`` asks for more of the same evidence; nobody but the judge's driver sees it.
    """

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    MORE = "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbResult:
    """The time of a step of ``after`` against that of ``before``: an answer and numbers.

    ``ratio`` is the time of ``after`` divided by that of ``before``; ``low`` and
    ``high`` bound it with 95 % confidence. ``smallest`` is the slowdown, 0.03 for 3 %,
    that this much evidence would have shown nine times in ten. Times are the middle
    ones of pairs of processes, or lower quartiles in one process. A number is ``None``
    if there is too little evidence for it. ``p_value`` belongs to the hypothesis that
    the answer rejects. The evidence are so many ``pairs`` of processes, or ``quads`` of
    blocks in one process, both sides in turns, of so many ``steps``, in ``seconds``.
    """

    answer: Answer
    why: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    smallest: float | None = None
    before_ms: float | None = None
    after_ms: float | None = None
    p_value: float | None = None
    pairs: int = 0
    quads: int = 0
    steps: int = 0
    seconds: float = 0.0

    @classmethod
    def unknown(cls, why: str) -> AbResult:
        """Return that there is no answer, as there are no numbers, and *why*."""
        return cls(answer=Answer.INCONCLUSIVE, why=why)

    @property
    def speedup(self) -> float | None:
        """How many times as fast ``after`` is."""
        return inverse(self.ratio)

    @property
    def least_speedup(self) -> float | None:
        """Lower end of the interval of the speedup."""
        return inverse(self.high)

    @property
    def most_speedup(self) -> float | None:
        """Upper end of the interval of the speedup."""
        return inverse(self.low)


def inverse(ratio: float | None) -> float | None:
    """Return the speedup of a ratio of times, or the reverse."""
    return None if ratio is None else 1 / ratio


class Turn(Enum):
    """Which way an exact metric went; ``VARIES`` where the runs of a side disagree."""

    WORSE = "worse"
    BETTER = "better"
    VARIES = "varies"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactChange:
    """A count or size that differs; only a ``gated`` one can fail a comparison.

    ``proving`` says that more pairs may show what its runs do not tell yet. Of ``before``
    and of ``after`` cuBLAS keeps the same ``workspace_bytes``.
    """

    metric: str
    before: float
    after: float
    turn: Turn
    gated: bool
    proving: bool = False
    workspace_bytes: int = 0


class AbOutcome(Enum):
    """What came of a call: what needs attention comes first."""

    DIFFERS = "training differs"
    WORSE = "worse"
    BROKEN = "broken"
    INCONCLUSIVE = "inconclusive"
    BETTER = "better"
    SAME = "same"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What both sides showed of one call: training, counts and bytes, and time.

    ``before`` and ``after`` are exact metrics by name, ``exact`` those that differ as a
    judge sees it. ``unmeasured`` says of every metric that has no number on one side or
    on both why that is; the time was ``lost`` where the device has a clock. ``training``
    says whether the two train the same, where that was asked.

    Of two versions of a project: ``findings`` are those of ``after``, and ``operations``
    the lines that run others than before. ``settled`` is
    false while another of its ``pairs`` of processes could change what is said.
    ``uncompared`` says why there is nothing else, if so, and ``broken`` that
    ``after`` alone did not pass.
    """

    test: str = ""
    time: AbResult | None = None
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    training: Training | None = None
    exact: tuple[ExactChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    lost: bool = False
    pairs: int = 0
    settled: bool = True
    uncompared: str = ""
    broken: bool = False
    operations: tuple[LineChange, ...] = field(default=(), metadata=RARELY)

    @property
    def outcome(self) -> AbOutcome:
        """What came of it, in one word."""
        if self.uncompared:
            return AbOutcome.BROKEN if self.broken else AbOutcome.NOT_COMPARED
        if self.trains(TrainingAnswer.DIFFERS):
            return AbOutcome.DIFFERS
        if self.is_worse:
            return AbOutcome.WORSE
        if self.is_inconclusive:
            return AbOutcome.INCONCLUSIVE
        return AbOutcome.BETTER if self.is_better else AbOutcome.SAME

    def trains(self, answer: TrainingAnswer) -> bool:
        """Whether this is what was found of the training."""
        return self.training is not None and self.training.answer is answer

    @property
    def no_time(self) -> str:
        """Why there is no time."""
        return self.unmeasured.get(SPEEDUP.name, "")

    @property
    def is_worse(self) -> bool:
        """Whether a regression is confirmed."""
        return self.broken or self._has(Answer.SLOWER, Turn.WORSE)

    @property
    def worse_counts(self) -> tuple[ExactChange, ...]:
        """What is exact and confirmed to be worse."""
        return tuple(c for c in self.exact if c.gated and c.turn is Turn.WORSE)

    @property
    def worse_metrics(self) -> tuple[str, ...]:
        """Everything with numbers that is confirmed to be worse."""
        is_slower = self.time is not None and self.time.answer is Answer.SLOWER
        time = (STEP_MS.name,) if is_slower else ()
        return (*time, *(change.metric for change in self.worse_counts))

    @property
    def is_better(self) -> bool:
        return self._has(Answer.FASTER, Turn.BETTER)

    @property
    def is_suspect(self) -> bool:
        """Whether its time seems to have changed, though that is not yet proven."""
        low, high = (self.time.low, self.time.high) if self.time else (None, None)
        return low is not None and high is not None and not low <= 1 <= high

    @property
    def is_inconclusive(self) -> bool:
        return self.lost or self._has(Answer.INCONCLUSIVE, Turn.VARIES)

    def _has(self, answer: Answer, turn: Turn) -> bool:
        """Whether this is the answer in time, or the turn of what is gated."""
        is_answer = self.time is not None and self.time.answer is answer
        return is_answer or any(c.gated and c.turn is turn for c in self.exact)


class AbStatus(IntEnum):
    """Exit status of a comparison; ``docs/reference/exit-status.md`` has them all.

    ``git bisect run`` skips a commit without an answer. Numbers of another
    training prove nothing, so that comes before what is worse.
    """

    FINE = 0
    WORSE = 1
    OTHER_TRAINING = 2
    CANNOT_TELL = 125


@dataclass(frozen=True, slots=True, kw_only=True)
class AbRun:
    """Everything that came of comparing ``before`` with ``after``, two names."""

    before: str
    after: str
    device: str
    engine: str
    calls: tuple[Comparison, ...] = ()
    uncompared: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_worse(self) -> bool:
        return any(found.is_worse for found in (*self.calls, *self.uncompared))

    def trained(self, answer: TrainingAnswer) -> tuple[Comparison, ...]:
        """Return the calls of which this was found."""
        return tuple(call for call in self.calls if call.trains(answer))

    @property
    def status(self) -> AbStatus:
        """What the command exits with: what came first makes the rest worth less."""
        if self.trained(TrainingAnswer.DIFFERS):
            return AbStatus.OTHER_TRAINING
        if self.is_worse:
            return AbStatus.WORSE
        none = not self.trained(TrainingAnswer.SAME)
        untold = none and self.trained(TrainingAnswer.NOT_COMPARED)
        if untold or all(call.is_inconclusive for call in self.calls):
            return AbStatus.CANNOT_TELL
        return AbStatus.FINE


# What a process leaves of its first training steps, and what two of these say.


class TrainingAnswer(Enum):
    """Whether two sides train the same; what has nothing to compare trains nothing."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_COMPARED = "not compared"
    NOTHING = "nothing is trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """An answer, and the sentence of what agreed or what differs first."""

    answer: TrainingAnswer
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """The shape of a tensor, its norm, and a few weighted ``sums`` of its numbers.

    The sums of a difference are the differences of the sums, so two of them estimate how
    far two tensors are apart. One that is not ``finite`` has no norm and no sums.
    """

    shape: tuple[int, ...]
    norm: float = 0.0
    sums: tuple[float, ...] = ()
    finite: bool = True

    @property
    def size(self) -> int:
        """How many numbers the tensor has."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTensor:
    """A parameter in one update: its gradient, and its movement.

    ``value`` is where it began, in the first step. ``rounding`` is what the movement is
    off by if each number is rounded a few times. In the movement each number weighs as
    its gradient does. ``options`` are those of its optimizer that decide how it moves.
    """

    name: str
    gradient: Sketch
    value: Sketch | None = None
    movement: Sketch | None = None
    rounding: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStep:
    """What a step returned, what it went backward from, and all that it updated."""

    returned: Sketch | None = None
    losses: tuple[Sketch, ...] = ()
    updates: int = 0
    tensors: tuple[TrainedTensor, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it to compare."""
        return self.returned is None and not self.losses and not self.tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """The first steps of a call. ``precision`` is the coarsest type that they compute in.

    ``unseeded`` says that its process drew numbers that no seed repeats, ``missing`` why
    something is not recorded.
    """

    steps: tuple[TrainedStep, ...] = ()
    precision: str = "float32"
    unseeded: bool = False
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the tests of a side train: records by call, and by test why it has failed."""

    records: Mapping[str, TrainingRecord] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
