"""What a number was read on: hardware is the key of a baseline, software stands beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from enum import Enum
from typing import Final


PRETEND_GIB: Final = 80.0
"""Memory of the pretend GPU where nobody asks for another one."""


class DeviceKind(Enum):
    """The kinds of device a step can be measured on."""

    CUDA = "cuda"
    PRETEND = "pretend"
    CPU = "cpu"
    SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The hardware a baseline belongs to: a kind and the model's name."""

    kind: DeviceKind
    name: str

    @property
    def key(self) -> str:
        """File name of this hardware's baselines: ``cuda-nvidia-h200``."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"{self.kind.value}-{slug}" if slug else self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Hardware, and the software versions and settings recorded beside it."""

    hardware: Hardware
    software: Mapping[str, str] = field(default_factory=dict)
