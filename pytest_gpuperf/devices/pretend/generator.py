"""``torch.Generator``, which may be asked for on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .device_names import CUDA
from .patches import Patch
from .placement import is_cuda


_Generator = torch.Generator


class DeviceGenerator(_Generator):  # type: ignore[misc,valid-type]  # torch is untyped here
    """A generator on the host that says it is on the device."""

    device = property(lambda _: CUDA)


class AnyGenerator(type):
    """Class of the stand-in, of which every generator is an instance."""

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether *instance* is any generator."""
        return isinstance(instance, _Generator)

    def __call__(cls, device: Any = "cpu") -> Any:
        """Make one, on the device if *device* says so."""
        return DeviceGenerator() if is_cuda(device) else _Generator(device)


class Generator(metaclass=AnyGenerator):
    """Stands for ``torch.Generator``."""


def generator_patches() -> Iterator[Patch]:
    """The one class."""
    yield Patch(torch, "Generator", Generator)
