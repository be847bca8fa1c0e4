"""Checks that two steps do the same training.

Both sides run in turns from the same start, with the same arguments and random numbers, and
the judge of ``gpuperf ab`` compares what they trained. A step may do its work only while it
is checked: it counts its calls, asks who calls it, or returns what it has kept. So when all
has been measured it is asked how far the parameters have come, and the check is made once
more, from parameters that no step has seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import hypot, isfinite
from typing import Any, Final, NoReturn

from ..errors import ErrorId, StepError
from ..judge.training import judge_training
from ..measure.step import Subject
from ..model.ab import TrainedTensor, Training, TrainingAnswer, TrainingRecord
from ..model.metrics import counted
from .isolation import Pair, SharedState, tensors_of
from .training_record import TRAINED_STEPS, Recorder, flat, numbers_in


def begin(pair: Pair) -> Training | None:
    """Run each side once, or as often as it takes to see whether both train the same.

    Returns what agreed, if it was asked for. Raises ``StepError`` if a side changes what the other uses
    or trains something else, and whatever a step raises.
    """
    shared = SharedState(pair)
    if pair.training is not None:
        return check_training(pair, pair.training, shared)
    for name, side in (("before", pair.before), ("after", pair.after)):
        side.run_once()
        shared.refuse_change_by(name)
    return None


def check_training(pair: Pair, tolerance: float, shared: SharedState) -> Training:
    """Run both sides ``TRAINED_STEPS`` times and return what agreed within *tolerance*.

    Raises ``StepError`` if the training differs or cannot be compared, and whatever a
    step raises.
    """
    sides = Recorder(unseen=pair.unseen), Recorder(unseen=pair.unseen)
    for number in range(1, TRAINED_STEPS + 1):
        # One call of ``setup`` for both: two calls could return different batches.
        arguments = pair.before.arguments()
        results = [_run(pair.before, _copies(arguments), sides[0], number)]
        if number == 1:
            shared.refuse_change_by("before")
        results.append(_run(pair.after, arguments, sides[1], number))
        if number == 1:
            shared.refuse_change_by("after")
        with pair.unseen():
            unlike = _unlike(*results)
        if unlike:
            _refuse(f"it cannot be checked: {unlike}")
    return _judged(sides[0].record(), sides[1].record(), tolerance)


def _judged(
    before: TrainingRecord, after: TrainingRecord, tolerance: float
) -> Training:
    _refuse_untrained("before", before)
    _refuse_untrained("after", after)
    found = judge_training([before], [after], tolerated=tolerance)
    if found.answer is TrainingAnswer.DIFFERS:
        _refuse(f"the training differs: {found.text}")
    if found.answer is not TrainingAnswer.SAME:
        _refuse(f"it cannot be checked: {found.text}")
    if not _is_finite(before):
        _refuse("it cannot be checked: both sides train NaN or infinite numbers")
    return found


def _run(
    side: Subject, arguments: Sequence[object], recorder: Recorder, seed: int
) -> object:
    """Run one step of *side* with the random numbers of *seed*, and return its result."""
    with _seeded(seed):
        return recorder.run(replace(side, setup=partial(tuple, arguments)))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Give each side the same random numbers, of torch and of Python."""
    import torch

    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


def _copies(arguments: Sequence[object]) -> tuple[object, ...]:
    """Copy the tensors among *arguments*: a step may write into its own."""
    return tuple(_copied(value) for value in arguments)


def _copied(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in {tuple, list}:
        return type(value)(_copied(item) for item in value)
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value


PLAIN_TENSORS: Final = frozenset({"Tensor", "Parameter"})


def _unlike(first: object, second: object) -> str:
    """Say why two results cannot be compared, if they cannot.

    A tensor of a class of its own may do its work when it is read.
    """
    ours, theirs = (
        {type(one).__name__ for one in numbers_in(it) if hasattr(one, "grad_fn")}
        - PLAIN_TENSORS
        for it in (first, second)
    )
    if ours != theirs:
        return (
            f"one side alone returns a {', '.join(ours ^ theirs)}, "
            "which may do its work when it is read; let both return a plain tensor"
        )
    one, two = flat(first), flat(second)
    if (one is None) is (two is None) and (one is None or one.shape == two.shape):
        return ""
    return (
        f"before returns {_described(first, one)}, after "
        f"returns {_described(second, two)}; let both return their loss, or neither"
    )


def _described(result: object, numbers: Any) -> str:
    if numbers is None:
        return "None" if result is None else f"a {type(result).__name__}"
    return counted(len(numbers), "number")


def _refuse_untrained(side: str, record: TrainingRecord) -> None:
    step = record.steps[0]
    if not step.tensors and not step.updates:
        _refuse(
            f"it cannot be checked: nothing that {side} trains was found, no optimizer "
            "of torch.optim made a step, and its step has no tensor with a gradient; "
            "make the tensors variables of the step, or leave it out"
        )


def _is_finite(record: TrainingRecord) -> bool:
    gradients = [t.gradient for step in record.steps for t in step.tensors]
    returned = [step.returned for step in record.steps if step.returned]
    return all(sketch.finite for sketch in (*gradients, *returned))


def _refuse(why: str) -> NoReturn:
    msg = f"gpuperf.compare(before, after, same_training=True): {why}"
    raise StepError(msg, ErrorId.GP714)


# Once more, when all has been measured.

AT_END: Final = TRAINED_STEPS + 1
"""Seed of the random numbers then."""

FRESH_SCALE: Final = 1.5
"""What the first parameters are multiplied by: what was kept of them is of no use."""

ALIKE_AT_END: Final = 0.5
"""Relative difference that passes: other state has moved on, of each side by itself."""

MOST_SHIFTS: Final = 16
"""Steps that one side may be behind the other, where a step updates every few calls."""

FAR_APART: Final = 10.0
"""How many times as far the parameters of one side may have come."""

ROUNDING_WAY: Final = 1e-4
"""Way of all parameters, as a share of their norm, that is only rounding."""

Start = Sequence[tuple[Any, Any]]
"""Each parameter of a side, and a copy of it on the host."""


def starts_of(pair: Pair) -> tuple[Start, Start]:
    """Copy the parameters of both sides; none if nobody asks for the training."""
    if pair.training is None:
        return (), ()
    return _start_of(pair.before), _start_of(pair.after)


def _start_of(side: Subject) -> Start:
    trained = [t for t in tensors_of(side.step).values() if t.requires_grad]
    return [(t, t.detach().to("cpu", copy=True).double()) for t in trained if t.is_leaf]


def refuse_other_training(pair: Pair, *starts: Start) -> None:
    """Raise ``StepError`` if the sides do not train alike any more.

    Nothing is known of sides if not all their parameters are found.
    """
    ours, theirs = (sum(then.numel() for _, then in start) for start in starts)
    if not ours or ours != theirs:
        return
    ways = [*map(_way, starts)]
    if not any(map(isfinite, ways)):  # both have diverged: only NaN is left
        return
    least, most = sorted(ways)
    found = f"parameters moved by {least:.2%} on one side, {most:.2%} on the other"
    if most <= max(ROUNDING_WAY, FAR_APART * least):
        found = _difference(pair, starts)
    if found:
        _refuse(f"the training differs since the first steps: {found}")


def _difference(pair: Pair, starts: Sequence[Start]) -> str:
    sides = Recorder(), Recorder()
    differences = []
    for number in range(MOST_SHIFTS):
        for start in starts:
            _set(start, FRESH_SCALE * (-1) ** number)
        differences.append(_apart_now(pair, *sides))
        if not differences[-1]:
            return ""
        pair.after.run_once()
    return differences[0]


def _apart_now(pair: Pair, before: Recorder, after: Recorder) -> str:
    """Run a step of each side; say how gradients or results differ, if they do.

    ``after`` is first: what it would copy from ``before`` is not there yet.
    """
    arguments = pair.after.arguments()
    second = _run(pair.after, _copies(arguments), after, AT_END)
    first = _run(pair.before, arguments, before, AT_END)
    ours, theirs = ([_last_gradients(side)] for side in (before, after))
    found = judge_training(ours, theirs, tolerated=ALIKE_AT_END)
    return _unlike(first, second) or (
        "" if found.answer is TrainingAnswer.SAME else found.text
    )


def _last_gradients(side: Recorder) -> TrainingRecord:
    """Return the last step without what moved on by itself: learning rates and such."""
    last = side.record().steps[-1]
    tensors = (TrainedTensor(name=t.name, gradient=t.gradient) for t in last.tensors)
    return TrainingRecord(steps=(replace(last, tensors=tuple(tensors)),))


def _way(start: Start) -> float:
    """Return how far the parameters have come since *start*, as a share of their norm."""
    way = hypot(
        *(float((tensor.detach().cpu() - then).norm()) for tensor, then in start)
    )
    return way / (hypot(*(float(then.norm()) for _, then in start)) or 1.0)


def _set(start: Start, scale: float) -> None:
    import torch

    with torch.no_grad():
        for tensor, then in start:
            tensor.copy_(scale * then)
