"""The predicted memory of a program on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Peaks over the ``steps`` that were run, and what is in use at the larger one.

    ``not_checked`` says what of the program only a GPU can tell; then every number is
    a guess. ``notes`` say what else must be known to read the numbers. ``as_eager`` says
    that the program compiles code, and the numbers are those of eager code. Only Python's
    garbage collector frees ``garbage_bytes`` of each step, and where it does not run all
    steps need ``uncollected_bytes``. Each step leaves ``growth_bytes``, if steps do alike;
    the program would have gone on where it ``was_ended``.
    """

    allocated_bytes: int
    reserved_bytes: int
    steps: int
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    as_eager: bool = False
    garbage_bytes: int = 0
    uncollected_bytes: int = 0
    growth_bytes: int = 0
    was_ended: bool = False


class Fit(Enum):
    """Whether a program fits a GPU."""

    FITS = "fits"
    TOO_LARGE = "does not fit"
    TOO_CLOSE = "is too close to tell"
    UNKNOWN = "cannot be judged"
    """Only a GPU can judge what the program does."""


class Saving(Enum):
    """A known way to need less memory, in the words of who would write it."""

    EARLY_ZERO_GRAD = "zero_grad(set_to_none=True) before the forward"
    FOR_LOOP = "foreach=False in the optimizer"
    FUSED = "fused=True in the optimizer"
    CHECKPOINT = "checkpointing of the repeated blocks"
    HALF_BATCH = "half the batch, accumulated over two"
