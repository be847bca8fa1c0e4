"""What one step trains: the gradients that its optimizers see, and the parameters."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..probes.subject import Subject
from .reach import tensors_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A tensor just before it is updated: copies on the host of its value and gradient."""

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


def watched(side: Subject) -> Watched:
    """Run one step and return what it trains.

    These are the parameters with a gradient of each optimizer of torch.optim that makes
    a step. Where none does, they are the tensors with a gradient that the step reaches.
    """
    reached = tensors_of(side.step)
    names = {id(tensor): name for name, tensor in reached.items()}
    values = {
        name: numbers_of(tensor)
        for name, tensor in reached.items()
        if tensor.requires_grad and tensor.is_leaf
    }
    with _updates(names) as updates:
        result = side.run_once()
    if updates:
        trained = [one for update in updates for one in update]
    else:
        trained = [
            _trained(name, reached[name], value)
            for name, value in values.items()
            if reached[name].grad is not None
        ]
    return Watched(result=result, updates=len(updates), trained=tuple(trained))


@contextmanager
def _updates(names: Mapping[int, str]) -> Iterator[list[list[Trained]]]:
    """Keep what each optimizer sees that makes a step meanwhile."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    updates: list[list[Trained]] = []

    def keep(optimizer: Any, *_: object) -> None:
        groups = optimizer.param_groups
        tensors = [tensor for group in groups for tensor in group["params"]]
        scale = getattr(optimizer, "grad_scale", None)  # of a GradScaler, fused
        updates.append(
            [
                _trained(
                    names.get(id(tensor), f"parameter {number}"), tensor, scale=scale
                )
                for number, tensor in enumerate(tensors, start=1)
                if tensor.grad is not None
            ]
        )

    handle = register_optimizer_step_pre_hook(keep)
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
    """Return the numbers of what a step returned as one vector; ``None`` without any."""
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
