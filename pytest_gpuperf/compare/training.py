"""Whether two steps do the same training: a trick that changes it is no trick.

Both sides run in turns from the same start, with the same arguments and random numbers.
What they return and the gradients that their optimizers see must agree in each step,
and their parameters must end in the same place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import hypot
from math import inf
from math import isfinite
from math import sqrt
from typing import Any
from typing import Final
from typing import NoReturn

from ..errors import StepError
from ..probes.subject import Subject
from .shared import SharedState
from .trained import Trained
from .trained import Watched
from .trained import copied
from .trained import flat
from .trained import numbers_of
from .trained import watched


STEPS: Final = 3
"""The second shows what the first did to the parameters, the third what was left over."""

NEGLIGIBLE: Final = 0.01
"""Gradients below this share of the norm of all count as if they had it: those of a bias
before a normalisation are nothing but rounding."""

Pairs = tuple[tuple[Trained, Trained], ...]
"""What before trains beside its counterpart of after."""


def check_training(
    before: Subject, after: Subject, shared: SharedState, tolerance: float
) -> str:
    """Run both sides ``STEPS`` times and say what agreed.

    Loss and gradients may differ by *tolerance*, a ratio; the way that the parameters
    went by its square root, because an optimizer like Adam makes whole steps of the
    smallest gradients. Raises ``StepError`` where the training differs, where it cannot
    be compared, and whatever a step raises.
    """
    starts: dict[int, Any] = {}
    for number in range(1, STEPS + 1):
        first, second = _run_both(before, after, shared, number)
        pairs = _paired(first, second)
        if number == 1:
            _refuse_other_start(pairs, tolerance)
        for one, _ in pairs:
            starts.setdefault(id(one.tensor), one.value)
        _refuse_difference(number, first, second, pairs, tolerance)
    _refuse_other_movement(starts, pairs, sqrt(tolerance))
    return _agreed(first, tolerance)


def _run_both(
    before: Subject, after: Subject, shared: SharedState, number: int
) -> tuple[Watched, Watched]:
    arguments = before.arguments()
    given = copied(arguments)
    with _seeded(number):
        first = watched(replace(before, setup=partial(tuple, given)))
    if number == 1:
        shared.refuse_change_by("before")
    with _seeded(number):
        second = watched(replace(after, setup=partial(tuple, arguments)))
    if number == 1:
        shared.refuse_change_by("after")
    return first, second


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


def _paired(first: Watched, second: Watched) -> Pairs:
    """Match what both sides train: by name, or in order where names differ."""
    if first.updates != second.updates:
        _refuse(
            "the training differs: before makes "
            f"{_counted(first.updates, 'optimizer step')} in a step, after makes "
            f"{second.updates}"
        )
    ours, theirs = first.trained, second.trained
    if not ours or not theirs:
        side = "before" if not ours else "after"
        _refuse(
            f"it cannot be checked: nothing that {side} trains was found, no optimizer "
            "of torch.optim made a step, and its step holds no tensor that had a "
            "gradient; make the tensors variables of the step, or leave it out"
        )
    if len(ours) != len(theirs):
        _refuse(
            f"it cannot be checked: before trains {_counted(len(ours), 'tensor')}, "
            f"after trains {len(theirs)}"
        )
    pairs = tuple(zip(ours, _in_order_of(ours, theirs), strict=True))
    for one, other in pairs:
        if one.shape != other.shape:
            _refuse(
                f"it cannot be checked: {one.name} of before has the shape {one.shape}, "
                f"{other.name} of after the shape {other.shape}"
            )
    return pairs


def _in_order_of(
    ours: Sequence[Trained], theirs: Sequence[Trained]
) -> Sequence[Trained]:
    by_name = {one.name: one for one in theirs}
    wanted = [one.name for one in ours]
    if len(by_name) == len(theirs) and sorted(by_name) == sorted(wanted):
        return [by_name[name] for name in wanted]
    return theirs


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _refuse_other_start(pairs: Pairs, tolerance: float) -> None:
    apart = [(_apart(one.value, two.value), one.name) for one, two in pairs]
    difference, name = max(apart)
    if difference > tolerance:
        _refuse(
            "it cannot be checked: the sides do not start alike, "
            f"{_off(name, difference)}; build both from the same seed, or load the "
            "state_dict of one into the other"
        )


def _refuse_difference(
    number: int, first: Watched, second: Watched, pairs: Pairs, tolerance: float
) -> None:
    found = []
    returned, numbers = _results_apart(first.result, second.result)
    if returned > tolerance:
        found.append(_off("what the step returns", returned) + numbers)
    gradient, name = _gradients_apart(pairs)
    if gradient > tolerance:
        found.append(_off(f"the gradient of {name}", gradient))
    if found:
        _refuse(
            f"the training differs: in step {number} {', and '.join(found)}; "
            f"{_percent(tolerance)} is tolerated"
        )


def _results_apart(first: object, second: object) -> tuple[float, str]:
    """Return the difference of what both steps returned, and the two if they are short."""
    one, two = flat(first), flat(second)
    if one is None and two is None:
        return 0.0, ""
    if one is None or two is None or one.shape != two.shape:
        _refuse(
            f"it cannot be checked: before returns {_described(first, one)}, after "
            f"returns {_described(second, two)}; let both return their loss, or neither"
        )
    said = ""
    if len(one) == 1:
        said = f" ({float(one):.4g} before, {float(two):.4g} after)"
    return _apart(one, two), said


def _described(result: object, numbers: Any) -> str:
    if numbers is None:
        return "None" if result is None else f"a {type(result).__name__}"
    return _counted(len(numbers), "number")


def _gradients_apart(pairs: Pairs) -> tuple[float, str]:
    floor = NEGLIGIBLE * _norm([one.gradient for one, _ in pairs])
    return max(
        (_apart(one.gradient, two.gradient, floor), one.name) for one, two in pairs
    )


def _refuse_other_movement(
    starts: Mapping[int, Any], pairs: Pairs, tolerance: float
) -> None:
    floor = NEGLIGIBLE * _norm([one.gradient for one, _ in pairs])
    movements = [
        (_movements_apart(starts[id(one.tensor)], one, two), one.name)
        for one, two in pairs
        if id(one.tensor) in starts and _norm([one.gradient]) > floor
    ]
    difference, name = max(movements, default=(0.0, ""))
    if difference > tolerance:
        _refuse(
            f"the training differs: over {STEPS} steps "
            f"{_off(f'the movement of {name}', difference)}; {_percent(tolerance)} is "
            "tolerated"
        )


def _movements_apart(start: Any, one: Trained, two: Trained) -> float:
    return _apart(numbers_of(one.tensor) - start, numbers_of(two.tensor) - start)


def _apart(one: Any, two: Any, floor: float = 0.0) -> float:
    """Return the norm of the difference relative to the larger norm, or to *floor*."""
    difference = _norm([one - two])
    scale = max(_norm([one]), _norm([two]), floor)
    if difference == 0.0:
        return 0.0
    return difference / scale if isfinite(difference / scale) else inf


def _norm(vectors: Sequence[Any]) -> float:
    from torch.linalg import vector_norm

    return hypot(*(float(vector_norm(vector.double())) for vector in vectors))


def _off(what: str, difference: float) -> str:
    known = isfinite(difference)
    return f"{what} differs by {_percent(difference)}" if known else f"{what} is NaN"


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"


def _agreed(last: Watched, tolerance: float) -> str:
    tensors = len({id(one.tensor) for one in last.trained})
    returned = "" if flat(last.result) is None else "what the steps return and "
    return (
        f"{returned}the gradients of {_counted(tensors, 'tensor')} agree "
        f"within {_percent(tolerance)} over {STEPS} steps"
    )


def _refuse(why: str) -> NoReturn:
    msg = f"gpuperf.compare(before, after, same_training=True): {why}"
    raise StepError(msg)
