"""One operation as it is called: its arguments by the names of its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch


MASKS = (torch.bool, torch.uint8)


class OpCall:
    """An operation's arguments; the callable *on_device* says which are GPU tensors."""

    __slots__ = ("_args", "_kwargs", "_on_device", "_schema")

    def __init__(
        self,
        schema: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        on_device: Callable[[Any], bool],
    ) -> None:
        self._schema = schema
        self._args = args
        self._kwargs = kwargs
        self._on_device = on_device

    def __getitem__(self, name: str) -> Any:
        """Return the argument *name*, its default, or ``None`` if there is none."""
        for position, argument in enumerate(self._schema.arguments):
            if argument.name == name:
                if position < len(self._args):
                    return self._args[position]
                default = (
                    argument.default_value if argument.has_default_value() else None
                )
                return self._kwargs.get(name, default)
        return None

    def on_device(self, name: str) -> bool:
        """Whether the argument *name* is a tensor on the device."""
        return self._on_device(self[name])

    def is_host_tensor(self, value: Any) -> bool:
        """Whether *value* is a tensor on the host."""
        return isinstance(value, torch.Tensor) and not self._on_device(value)

    def tensors(self) -> Iterator[Any]:
        """Return every tensor argument, those of lists as well."""
        for value in (*self._args, *self._kwargs.values()):
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(item, torch.Tensor):
                    yield item

    def device_indices(self, *, masks: bool) -> int:
        """Count the index tensors on the device that are masks, or are none."""
        return sum(self._on_device(i) for i in self._indices(masks=masks))

    def host_indices(self) -> int:
        """Count the index tensors on the host that are no masks."""
        return sum(not self._on_device(i) for i in self._indices(masks=False))

    def dimensions_of_host_masks(self) -> int:
        """Count what masks on the host become: places in each of their dimensions."""
        masks = self._indices(masks=True)
        return sum(int(mask.dim()) for mask in masks if not self._on_device(mask))

    def is_any_on_device(self) -> bool:
        """Whether any tensor is on the device."""
        # The first is one mostly, and each read of an element asks.
        first = bool(self._args) and self._on_device(self._args[0])
        return first or any(map(self._on_device, self.tensors()))

    def _indices(self, *, masks: bool) -> list[Any]:
        given = [i for i in self["indices"] or () if i is not None]
        return [i for i in given if (i.dtype in MASKS) is masks]


# What an operation takes from the allocator besides its outputs.


AtOutput = tuple[Sequence[int], Sequence[int]]
"""Bytes that are taken around the birth of one output, and right after it."""

NOTHING_MORE: Final[AtOutput] = ((), ())


@dataclass(frozen=True, slots=True)
class Temporaries:
    """Bytes of what a kernel takes: before its outputs, or after them in some phases.

    What is taken before is given back at the end, what is taken in a phase with it, and
    a group of sizes among either before the next size is taken. ``outputs`` are those with
    memory of their own, by position; the operation has a row in ``BIRTH_ORDER``.
    """

    before: Sequence[int | Sequence[int]] = ()
    phases: Sequence[Sequence[int | Sequence[int]]] = ()
    outputs: Mapping[int, AtOutput] = field(default_factory=dict)


NO_TEMPORARIES: Final = Temporaries()

Rule = Callable[[OpCall], Temporaries]


def nbytes_of(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def copies_of(*tensors: Any) -> list[int]:
    """Bytes of contiguous copies of those that are not."""
    return [
        nbytes_of(tensor)
        for tensor in tensors
        if tensor is not None and not tensor.is_contiguous()
    ]
