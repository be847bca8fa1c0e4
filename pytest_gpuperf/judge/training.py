"""Whether two sides train the same, by what each of their processes recorded.

Both begin with the same random numbers. A side that does not repeat itself proves nothing:
what varies within a side is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import hypot, inf, sqrt
from typing import Final, NamedTuple, Protocol, TypeVar

from ..model.ab import (
    Sketch,
    TrainedStep,
    TrainedTensor,
    Training,
    TrainingAnswer,
    TrainingRecord,
)
from ..model.metrics import counted


NEGLIGIBLE: Final = 0.01
"""Share of the norm of all gradients that each one is compared with at least.

The gradients of a bias before a normalisation are only rounding. Of a coarse type it is the
share that is tolerated: small gradients, such as sums over an image, are rounded more.
"""

EQUAL_WITHIN: Final = {
    "float64": 1e-9,
    "float32": 1e-4,
    "tensorfloat32": 1e-2,
    "float16": 2e-2,
    "bfloat16": 5e-2,
}
"""How far apart the same mathematics may be, by the coarsest type that it computes in.

Sums in another order, other kernels and other threads: see ``benchmarks/same_training.py``.
"""

COARSEST: Final = 0.2
"""The same for types that are coarser still, as those of 8 bits."""

CLEARLY: Final = 10
"""How many times as far as within a side the sides are apart, if they differ."""

SMALL_RESULT: Final = 0.01
"""A returned number below this is compared with it where gradients are compared as well.

A loss that is a difference of equal sums is only rounding.
"""


NO_DEGREE: Final = -1.0
"""What is tolerated of what either differs or does not."""


class Named(Protocol):
    """Has a name."""

    @property
    def name(self) -> str:
        """How it is called."""


N = TypeVar("N", bound=Named)


def in_order_of(ours: Sequence[N], theirs: Sequence[N]) -> Sequence[N]:
    """Return *theirs* by the names of *ours*, or in order where names differ."""
    by_name = {one.name: one for one in theirs}
    wanted = [one.name for one in ours]
    if len(by_name) == len(theirs) and sorted(by_name) == sorted(wanted):
        return [by_name[name] for name in wanted]
    return theirs


class Apart(NamedTuple):
    """How far apart something is, and how far it may be."""

    what: str
    apart: float
    tolerated: float
    numbers: str = ""

    @property
    def is_beyond(self) -> bool:
        return self.apart > self.tolerated

    def in_words(self) -> str:
        """Say it in a sentence, or what is no matter of degree."""
        if self.tolerated == NO_DEGREE:
            return self.what
        if self.apart == inf:
            return f"{self.what} is NaN or infinite on one side"
        return (
            f"{self.what}: {percent(self.apart)} apart{self.numbers}, "
            f"tolerated {percent(self.tolerated)}"
        )


Runs = Sequence[TrainingRecord]
"""The same first steps of a side, recorded at least once."""


def judge_training(
    before: Runs, after: Runs, *, tolerated: float | None = None, drifts: bool = True
) -> Training:
    """Judge the runs of both sides.

    A ratio that is *tolerated* replaces those of ``EQUAL_WITHIN``. As much again is in each
    later step, as what is apart *drifts*.

    That the training differs takes two of each: one does not show what varies by itself.
    """
    missing = [run.missing for run in (*before, *after) if run.missing]
    if missing:
        return _not_compared(missing[0])
    if all(step.is_empty for run in (before[0], after[0]) for step in run.steps):
        nothing = "the step returns no number, and nothing that it trains was found"
        return Training(answer=TrainingAnswer.NOTHING, text=nothing)
    found = list(_differences(before[0], after[0], tolerated, drifts=drifts))
    first = next((each for each in found if each.is_beyond), None)
    if first is None:
        return _agreed(before[0], after[0], found)
    return _confirmed(first, found, before, after)


def _not_compared(why: str) -> Training:
    return Training(answer=TrainingAnswer.NOT_COMPARED, text=why)


def _differ(text: str) -> Training:
    return Training(answer=TrainingAnswer.DIFFERS, text=text)


def _agreed(
    before: TrainingRecord, after: TrainingRecord, found: Sequence[Apart]
) -> Training:
    steps, first = counted(len(after.steps), "step"), after.steps[0]
    split = _split_otherwise(before.steps[0], first)
    if split:
        return _not_compared(f"{split}; losses and the norm of all gradients agree")
    tensors = counted(len(first.tensors), "tensor")
    named = ["returned numbers"] if first.returned else []
    named += [f"gradients and movement of {tensors}"] if first.tensors else []
    worst = max((each.apart for each in found), default=0.0)
    said = f"within {percent(worst)}" if worst else "in every digit"
    text = f"{', '.join(named) or 'losses'} agree {said} over {steps}"
    return Training(answer=TrainingAnswer.SAME, text=text)


# What differs, if that is not what differs within a side as well.


def _confirmed(
    first: Apart, found: Sequence[Apart], before: Runs, after: Runs
) -> Training:
    until = {each.what for each in found[: found.index(first) + 1]}
    if len(before) > 1 and any(run.unseeded for run in before):
        return _not_compared(
            f"it uses random numbers without a seed; {first.in_words()}"
        )
    if _varies(before, first, until):
        return _not_compared(f"before varies from run to run: {first.what}")
    if _varies(after, first, until):
        if any(run.unseeded for run in after):
            why = "after uses random numbers without a seed, before does not"
            return _differ(f"{why}; {first.in_words()}")
        return _not_compared(f"after varies from run to run: {first.what}")
    pairs = [_found(first, *pair) for pair in product(before, after)]
    if min(pairs) <= first.tolerated:
        return _not_compared(f"it differs in some runs only: {first.what}")
    return _differ(f"{first.in_words()}{_precisions(before[0], after[0])}")


def _varies(runs: Runs, first: Apart, until: set[str]) -> bool:
    """Whether runs of one side are apart in what came *until* the *first* difference.

    By more than is tolerated, or in that by no less than the sides are.
    """
    for one, two in pairwise(runs):
        for each in _differences(one, two):
            if each.is_beyond and (each.what in until or each.tolerated == NO_DEGREE):
                return True
        if _found(first, one, two) * CLEARLY > first.apart:
            return True
    return False


def _found(first: Apart, one: TrainingRecord, two: TrainingRecord) -> float:
    """Return how far apart two runs are in *first*."""
    same = (each.apart for each in _differences(one, two) if each.what == first.what)
    return max(same, default=0.0)


def _precisions(before: TrainingRecord, after: TrainingRecord) -> str:
    if before.precision == after.precision:
        return ""
    return f"; before computes in {before.precision}, after in {after.precision}"


# Everything of two runs that can be compared, in the order of the training.


def _differences(
    one: TrainingRecord,
    two: TrainingRecord,
    tolerated: float | None = None,
    *,
    drifts: bool = True,
) -> Iterator[Apart]:
    # Coarser numbers on one side alone are a difference, and no reason to tolerate it.
    tolerated = tolerated or min(
        EQUAL_WITHIN.get(run.precision, COARSEST) for run in (one, two)
    )
    for number, steps in enumerate(zip(one.steps, two.steps, strict=False), start=1):
        # What is apart by rounding makes the next step begin apart.
        within = number * tolerated if drifts else tolerated
        yield from _Steps(number, *steps, within).differences()
    if len(one.steps) != len(two.steps):
        begin = f"before makes {counted(len(one.steps), 'step')}"
        yield Apart(f"{begin}, after {len(two.steps)}", inf, NO_DEGREE)


class _Steps(NamedTuple):
    """The same step of both sides, and how far apart its numbers may be."""

    number: int
    one: TrainedStep
    two: TrainedStep
    tolerated: float

    def differences(self) -> Iterator[Apart]:
        one, two = self.one, self.two
        if one.updates != two.updates:
            begin = f"in step {self.number} before makes"
            made = counted(one.updates, "optimizer step")
            yield Apart(f"{begin} {made}, after {two.updates}", inf, NO_DEGREE)
        elif _split_otherwise(one, two):
            yield from [*self._returned()] or self._losses()
            yield self._as_a_whole()
        else:
            yield from self._tensors()

    def _tensors(self) -> Iterator[Apart]:
        theirs = in_order_of(self.one.tensors, self.two.tensors)
        pairs = list(zip(self.one.tensors, theirs, strict=True))
        for our, their in pairs:
            if our.value and their.value:
                yield self._apart(f"{our.name} at the start of", our.value, their.value)
        returned = [*self._returned()]
        share = max(NEGLIGIBLE, self.tolerated)
        floor = share * max(map(_norm_of, (self.one, self.two)))
        gradients = [
            self._apart(f"gradient of {a.name} in", a.gradient, b.gradient, floor)
            for a, b in pairs
        ]
        # A loss that is scaled, with the gradients as they were, trains the same.
        is_other = not pairs or any(each.is_beyond for each in gradients)
        yield from returned or (self._losses() if is_other else ())
        for (our, their), gradient in zip(pairs, gradients, strict=True):
            yield gradient
            yield from _options(our, their)
            if our.movement and their.movement and our.gradient.norm > floor:
                what = f"movement of {our.name} in"
                moved = self._apart(what, our.movement, their.movement)
                # Adam makes whole steps of gradients that are only rounding.
                within = sqrt(self.tolerated) if gradient.apart else self.tolerated
                yield moved._replace(tolerated=max(within, _rounded(our, their)))

    def _returned(self) -> Iterator[Apart]:
        """Compare what both return, if that is as many numbers."""
        ours, theirs = self.one.returned, self.two.returned
        if ours and theirs and ours.shape == theirs.shape:
            floor = SMALL_RESULT * sqrt(ours.size) if self.one.tensors else 0.0
            yield self._apart("the result of", ours, theirs, floor)

    def _losses(self) -> Iterator[Apart]:
        for ours, theirs in zip(self.one.losses, self.two.losses, strict=False):
            yield self._apart("loss of", ours, theirs)

    def _as_a_whole(self) -> Apart:
        """Compare parameters that are split otherwise, as fused layers have them."""
        both = self.one, self.two
        sizes = [sum(each.gradient.size for each in step.tensors) for step in both]
        if sizes[0] != sizes[1]:
            split = _split_otherwise(*both)
            return Apart(f"the model is another one: {split}", inf, NO_DEGREE)
        norms = [_norm_of(step) for step in both]
        distance = _ratio(abs(norms[0] - norms[1]), max(norms))
        what = f"norm of all gradients in step {self.number}"
        return Apart(what, distance, self.tolerated)

    def _apart(self, what: str, one: Sketch, two: Sketch, floor: float = 0.0) -> Apart:
        numbers = ""
        if one.size == two.size == len(one.sums) == len(two.sums) == 1:
            numbers = f" ({one.sums[0]:.4g} before, {two.sums[0]:.4g} after)"
        distance = apart(one, two, floor)
        return Apart(f"{what} step {self.number}", distance, self.tolerated, numbers)


def _split_otherwise(one: TrainedStep, two: TrainedStep) -> str:
    """Say how two steps train tensors of other shapes, if they do."""
    ours, theirs = one.tensors, in_order_of(one.tensors, two.tensors)
    if len(ours) != len(theirs):
        names = {each.name for each in ours} ^ {each.name for each in theirs}
        such = f", such as {min(names)}" if names else ""
        count = counted(len(ours), "tensor")
        return f"before trains {count}, after {len(theirs)}{such}"
    for our, their in zip(ours, theirs, strict=True):
        old, new = our.gradient.shape, their.gradient.shape
        if old != new:
            return f"{our.name} has the shape {old}, after {their.name} has {new}"
    return ""


def _rounded(*pair: TrainedTensor) -> float:
    """Return how far a movement is apart by rounding, as a number that is large moves."""
    norm = max(each.movement.norm for each in pair if each.movement)
    return max(each.rounding for each in pair) / (norm or 1.0)


def _norm_of(step: TrainedStep) -> float:
    return hypot(*(each.gradient.norm for each in step.tensors))


def _options(one: TrainedTensor, two: TrainedTensor) -> Iterator[Apart]:
    for name in sorted(one.options.keys() & two.options.keys()):
        ours, theirs = one.options[name], two.options[name]
        if ours != theirs:
            said = f"{name} of {one.name}: {ours} before, {theirs} after"
            yield Apart(said, inf, NO_DEGREE)


def apart(one: Sketch, two: Sketch, floor: float = 0.0) -> float:
    """Return the norm of the difference relative to the larger norm, or to *floor*."""
    if one.shape != two.shape or one.finite != two.finite:
        return inf
    difference = hypot(*(a - b for a, b in zip(one.sums, two.sums, strict=True)))
    if one.size > len(one.sums):
        difference /= sqrt(len(one.sums) or 1)
    return _ratio(difference, max(one.norm, two.norm, floor))


def _ratio(difference: float, scale: float) -> float:
    return difference / scale if difference else 0.0


def percent(ratio: float) -> str:
    """Write a ratio of 0.01 as ``1 %``, to three digits."""
    return f"{100 * ratio:.3g} %"
