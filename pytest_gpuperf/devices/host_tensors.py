"""Tensors that a step keeps on the host on CUDA as well: reading them waits for nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from functools import partial
from typing import Any
from typing import Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from .storages import key_of
from .storages import storages_of
from .storages import tensors_in


FACTORIES: Final = frozenset(
    {
        torch.arange,
        torch.empty,
        torch.eye,
        torch.from_numpy,
        torch.full,
        torch.linspace,
        torch.ones,
        torch.rand,
        torch.randint,
        torch.randn,
        torch.randperm,
        torch.tensor,
        torch.zeros,
    }
)
"""Functions that make a tensor on the host unless they are told a device."""

MOVES: Final = frozenset({torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.type_as})
"""Methods that may take a tensor to another device, if on a CPU only in name."""


class HostTensors(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Knows, by storage, the tensors made without a device while it is active.

    What is computed from them alone belongs to them; what was moved to a device does
    not, though on a CPU it is the same tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in FACTORIES and _is_placeless(args, kwargs):
            self._add(result)
        elif func in MOVES and _names_device(args[1:], kwargs):
            self._remove(result)
        return result

    def hold(self, values: Iterable[Any]) -> bool:
        """Whether there are tensors among *values*, and all of them on the host."""
        tensors = list(tensors_in(values))
        return bool(tensors) and all(map(self._holds, tensors))

    def follow(self, values: Iterable[Any], result: Any) -> None:
        """Take in *result*, computed from *values*, if they are all on the host."""
        if self._known and self.hold(values):
            for tensor in tensors_in((result,)):
                self._add(tensor)

    def _holds(self, tensor: Any) -> bool:
        return any(key_of(storage) in self._known for storage in storages_of(tensor))

    def _add(self, tensor: Any) -> None:
        for storage in storages_of(tensor):
            key = key_of(storage)
            self._known[key] = weakref.ref(storage, partial(self._forget, key))

    def _forget(self, key: int, _: object) -> None:
        self._known.pop(key, None)

    def _remove(self, tensor: Any) -> None:
        for storage in storages_of(tensor):
            self._known.pop(key_of(storage), None)


def _is_placeless(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether nothing says a device: no argument, no tensor copied, no default."""
    return (
        kwargs.get("device") is None
        and _device.CURRENT_DEVICE is None
        and not any(tensors_in((*args, *kwargs.values())))
    )


def _names_device(args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    named = (*args, *kwargs.values())
    return any(isinstance(a, (str, int, torch.device, torch.Tensor)) for a in named)
