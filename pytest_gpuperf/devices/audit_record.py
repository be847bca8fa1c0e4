"""The record of one audited step, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ..model.finding import Finding, FindingKind, LineWork, Location
from ..model.metrics import D2H_BYTES, H2D_BYTES, LAUNCHES, PAGEABLE_COPIES
from .memory_picture import NOTHING_LEFT, Garbage


class StepMark(Enum):
    """What ends a step of a program with its own loop."""

    OPTIMIZER = "optimizer"
    """The ``step()`` of an optimizer."""
    BACKWARD = "backward"
    """A backward, where no optimizer steps."""
    REPLAY = "replay"
    """The replay of a captured graph that has the optimizer's ``step()`` in it, or, where
    nothing trains, anything."""
    LOADER = "loader"
    """The next batch of a ``DataLoader``, where there is neither."""
    LOOP = "loop"
    """A loop of the project that does something on the GPU, where there is none of these."""

    @property
    def sentence(self) -> str:
        """Say what a step is, if the optimizer's ``step()`` ends none."""
        if self is StepMark.OPTIMIZER:
            return ""
        if self is StepMark.REPLAY:
            return "a step is a replay of a captured graph"
        return f"no optimizer steps: a step is {STEP_MARKS[self]}"


STEP_MARKS: Final = {
    StepMark.BACKWARD: "a backward",
    StepMark.LOADER: "a batch of the DataLoader",
    StepMark.LOOP: "a turn of the loop around",
}


class CopyDirection(Enum):
    """Which way a copy goes."""

    H2D = "h2d"
    D2H = "d2h"


BYTES_METRICS: Final = {
    CopyDirection.H2D: H2D_BYTES.name,
    CopyDirection.D2H: D2H_BYTES.name,
}

MEMORY_WORDS: Final = {
    True: "pinned memory",
    False: "pageable memory",
    None: "the CPU",
}
"""The CPU's side of a copy; ``None`` if it is unknown."""


def copy_fields(direction: CopyDirection, *, pinned: bool | None) -> dict[str, Any]:
    """Return the fields of a finding that say what copies are, and what they count in.

    ``pinned`` says what the host's side is.
    """
    pageable = (PAGEABLE_COPIES.name,) if pinned is False else ()
    host = MEMORY_WORDS[pinned]
    to_gpu = direction is CopyDirection.H2D
    return {
        "kind": FindingKind.TRANSFER,
        "reason": f"from {host} to the GPU" if to_gpu else f"from the GPU to {host}",
        "metrics": (BYTES_METRICS[direction], *pageable),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a step.

    ``syncs`` counts every certain sync, ``blocking_copies`` those of them inside a copy.
    ``counts`` are those of ``model.metrics.AUDITED`` by name: ``launches`` are operations
    that would launch work, so neither views nor allocations, and ``flops`` those of
    torch's own formulas, see ``op_plan``.
    """

    syncs: int
    inconclusive: int
    blocking_copies: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAudit:
    """Everything seen between ``begin_step`` and ``end_step``.

    ``findings`` are syncs, ``copies`` go between host and device. ``not_checked`` lists
    what only a GPU can judge, and why, ``as_eager`` what was judged as eager code
    although a GPU would run it compiled. ``work`` says, if that was asked for, how many
    operations a line ran, or the code that it called, and ``operations`` which they were.
    ``steps`` counts those of a program with its own loop, 0 if nobody counted them;
    ``mark`` is what they were counted by, ``loop`` a line of the loop if it was that, and
    ``syncs`` has the certain syncs of each, but for those that happened once.
    ``garbage`` is what each of them leaves to the garbage collector, ``growth`` what it
    leaves for good, if steps do alike.
    """

    findings: tuple[Finding, ...]
    copies: tuple[Finding, ...]
    totals: Totals
    not_checked: tuple[Finding, ...]
    as_eager: tuple[Finding, ...]
    work: tuple[tuple[Location, bool, int], ...] = ()
    operations: tuple[LineWork, ...] = ()
    steps: int = 0
    mark: StepMark | None = None
    syncs: tuple[int, ...] = ()
    loop: Location | None = None
    garbage: Garbage | None = None
    growth: Garbage = NOTHING_LEFT

    @property
    def touched_gpu(self) -> bool:
        """Whether anything at all happened on the device."""
        return bool(
            self.totals.counts[LAUNCHES.name]
            or self.copies
            or self.findings
            or self.not_checked
        )

    @property
    def per_step(self) -> int:
        """The syncs of a step of a program, as many as most of its steps have.

        The length of the run does not change it, nor do syncs of every second step or fewer.
        """
        return sorted(self.syncs, reverse=True)[most_of(self.steps)]

    @property
    def usual(self) -> int:
        """The syncs of all steps, without what some do more than ``per_step``."""
        return sum(min(syncs, self.per_step) for syncs in self.syncs)


def most_of(steps: int) -> int:
    """Return what most of *steps* are more than: 3 of 5, which no rhythm comes close to."""
    return 3 * steps // 5
