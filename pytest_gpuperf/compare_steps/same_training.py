"""Checks that two steps do the same training.

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
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from math import hypot
from math import inf
from math import isfinite
from math import sqrt
from typing import Any
from typing import Final
from typing import NoReturn
from typing import Protocol

from ..errors import ErrorId
from ..errors import StepError
from ..judge.training import NEGLIGIBLE
from ..judge.training import in_order_of
from ..judge.training import percent
from ..measure.step import Subject
from ..model.metric import counted
from .isolation import Pair
from .isolation import SharedState
from .isolation import tensors_of


# The effect of one training step: gradients that its optimizers see, and parameters.


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A tensor just before its update: host copies of its value and gradient."""

    name: str
    tensor: Any
    value: Any
    gradient: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a step returned, how often it updated, and all that it updated, in order."""

    result: object
    updates: int
    trained: tuple[Trained, ...]


class Keep(Protocol):
    """Keeps a tensor before its update: its *value*, if it had another one, and its
    gradient, which an optimizer divides by *scale*.
    """

    def __call__(
        self, name: str, tensor: Any, value: Any = None, *, scale: Any = None
    ) -> Any: ...


def watched(side: Subject, keep: Keep | None = None) -> Watched:
    """Run one step and return what it trains, as *keep* keeps it.

    These are the parameters with a gradient of each optimizer of torch.optim that makes
    a step. Where none does, they are the tensors with a gradient that the step reaches.
    """
    keep = keep or _trained
    reached = tensors_of(side.step)
    names = {id(tensor): name for name, tensor in reached.items()}
    values = {
        name: numbers_of(tensor)
        for name, tensor in reached.items()
        if tensor.requires_grad and tensor.is_leaf
    }
    with updates_in(names, keep) as updates:
        result = side.run_once()
    trained = [one for update in updates for one in update]
    if not trained:
        trained = [
            keep(name, reached[name], value)
            for name, value in values.items()
            if reached[name].grad is not None
        ]
    return Watched(result=result, updates=len(updates), trained=tuple(trained))


@contextmanager
def updates_in(names: Mapping[int, str], keep: Keep) -> Iterator[list[list[Any]]]:
    """Record what each optimizer sees that makes a step inside the context."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    updates: list[list[Any]] = []

    def kept(optimizer: Any, *_: object) -> None:
        groups = optimizer.param_groups
        tensors = [tensor for group in groups for tensor in group["params"]]
        # A fused optimizer under a GradScaler divides by the scale itself, so the
        # gradients are still scaled here.
        scale = getattr(optimizer, "grad_scale", None)
        updates.append(
            [
                keep(names.get(id(tensor), f"parameter {number}"), tensor, scale=scale)
                for number, tensor in enumerate(tensors, start=1)
                if tensor.grad is not None
            ]
        )

    handle = register_optimizer_step_pre_hook(kept)
    try:
        yield updates
    finally:
        handle.remove()


def _trained(
    name: str, tensor: Any, value: Any = None, *, scale: Any = None
) -> Trained:
    gradient = numbers_of(tensor.grad)
    return Trained(
        name=name,
        tensor=tensor,
        value=numbers_of(tensor) if value is None else value,
        gradient=gradient if scale is None else gradient / float(scale),
    )


def numbers_of(tensor: Any) -> Any:
    """Copy *tensor* to the host as a dense vector of real numbers, of 4 or 8 bytes."""
    import torch

    copied = tensor.detach().to("cpu", copy=True)
    if copied.layout is not torch.strided:
        copied = copied.to_dense()
    if copied.is_complex():
        copied = torch.view_as_real(copied)
    wide = copied.dtype is torch.float64
    return copied.reshape(-1) if wide else copied.reshape(-1).float()


def flat(value: object) -> Any:
    """Return the numbers in a step's result as one vector; ``None`` without any."""
    import torch

    vectors = [
        numbers_of(item)
        if isinstance(item, torch.Tensor)
        else torch.tensor([float(item)])
        for item in _numbers_in(value)
    ]
    return torch.cat([vector.double() for vector in vectors]) if vectors else None


def _numbers_in(value: object) -> Iterator[Any]:
    import torch

    if isinstance(value, (torch.Tensor, float, int)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _numbers_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _numbers_in(item)


def copied(arguments: Sequence[object]) -> tuple[object, ...]:
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


TRAINED_STEPS: Final = 3
"""The second shows what the first did to the parameters, the third what remained."""

AT_END: Final = TRAINED_STEPS + 1
"""Number of a step that is compared when all has been measured."""

Pairs = tuple[tuple[Trained, Trained], ...]
"""What before trains, each with its counterpart in after."""


def check_training(
    before: Subject, after: Subject, shared: SharedState, tolerance: float
) -> str:
    """Run both sides ``TRAINED_STEPS`` times and say what agreed.

    Loss and gradients may differ by *tolerance*, a ratio; the movement of the
    parameters by its square root, because an optimizer like Adam makes whole steps of
    the smallest gradients. Raises ``StepError`` if the training differs or cannot be
    compared, and whatever a step raises.
    """
    starts: dict[int, Any] = {}
    for number in range(1, TRAINED_STEPS + 1):
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
    # One call of ``setup`` for both: two calls could return different batches.
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


def difference_of(pair: Pair, tolerance: float) -> str | None:
    """Run a step of each side; say how it trains or returns other numbers, if it does.

    ``after`` is first: what it would copy from ``before`` is not there yet.
    """
    shared = SharedState(pair.before, pair.after)
    second, first = _run_both(pair.after, pair.before, shared, AT_END)
    try:
        _refuse_difference(AT_END, first, second, _paired(first, second), tolerance)
    except StepError as error:
        return error.text.removeprefix(TRAINING_REFUSED)
    return None


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
            f"{counted(first.updates, 'optimizer step')} in a step, after makes "
            f"{second.updates}"
        )
    ours, theirs = first.trained, second.trained
    if not ours or not theirs:
        side = "before" if not ours else "after"
        _refuse(
            f"it cannot be checked: nothing that {side} trains was found, no optimizer "
            "of torch.optim made a step, and its step has no tensor with a gradient; "
            "make the tensors variables of the step, or leave it out"
        )
    if len(ours) != len(theirs):
        _refuse(
            f"it cannot be checked: before trains {counted(len(ours), 'tensor')}, "
            f"after trains {len(theirs)}"
        )
    pairs = tuple(zip(ours, in_order_of(ours, theirs), strict=True))
    for one, other in pairs:
        if one.shape != other.shape:
            _refuse(
                f"it cannot be checked: {one.name} of before has the shape {one.shape}, "
                f"{other.name} of after the shape {other.shape}"
            )
    return pairs


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
            f"{percent(tolerance)} is tolerated"
        )


def _results_apart(first: object, second: object) -> tuple[float, str]:
    """Return the difference of the results, and both as text if they are one number."""
    _refuse_unlike_kinds(first, second)
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


PLAIN_TENSORS: Final = frozenset({"Tensor", "Parameter"})


def _refuse_unlike_kinds(first: object, second: object) -> None:
    """Refuse a tensor of a class of its own on one side alone: it may work when read."""
    ours, theirs = (
        {type(one).__name__ for one in _numbers_in(it) if hasattr(one, "grad_fn")}
        - PLAIN_TENSORS
        for it in (first, second)
    )
    if ours != theirs:
        _refuse(
            f"it cannot be checked: one side alone returns a {', '.join(ours ^ theirs)}, "
            "which may do its work when it is read; let both return a plain tensor"
        )


def _described(result: object, numbers: Any) -> str:
    if numbers is None:
        return "None" if result is None else f"a {type(result).__name__}"
    return counted(len(numbers), "number")


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
            f"the training differs: over {TRAINED_STEPS} steps "
            f"{_off(f'the movement of {name}', difference)}; {percent(tolerance)} is "
            "tolerated"
        )


def _movements_apart(start: Any, one: Trained, two: Trained) -> float:
    return _apart(numbers_of(one.tensor) - start, numbers_of(two.tensor) - start)


def _apart(one: Any, two: Any, floor: float = 0.0) -> float:
    """Return the norm of the difference relative to the larger norm, or to *floor*."""
    # Equal zeros have no scale; and infinite or NaN values must fail, where a
    # comparison with NaN would pass.
    difference = _norm([one - two])
    scale = max(_norm([one]), _norm([two]), floor)
    if difference == 0.0:
        return 0.0
    return difference / scale if isfinite(difference / scale) else inf


def _norm(vectors: Sequence[Any]) -> float:
    from torch.linalg import vector_norm

    # In double precision: the squares of small float32 gradients underflow.
    return hypot(*(float(vector_norm(vector.double())) for vector in vectors))


def _off(what: str, difference: float) -> str:
    known = isfinite(difference)
    return f"{what} differs by {percent(difference)}" if known else f"{what} is NaN"


def _agreed(last: Watched, tolerance: float) -> str:
    tensors = len({id(one.tensor) for one in last.trained})
    returned = "" if flat(last.result) is None else "what the steps return and "
    return (
        f"{returned}the gradients of {counted(tensors, 'tensor')} agree "
        f"within {percent(tolerance)} over {TRAINED_STEPS} steps"
    )


TRAINING_REFUSED: Final = "gpuperf.compare(before, after, same_training=True): "


def _refuse(why: str) -> NoReturn:
    msg = f"{TRAINING_REFUSED}{why}"
    raise StepError(msg, ErrorId.GP714)
