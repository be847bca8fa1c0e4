"""What a process leaves of its first training steps, and what two of these say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod


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
