"""Where the time of a step goes, and so what to change first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from .finding import Location


FULL: Final = 95.0
"""Percent of a step from which on the GPU itself is what the step waits for."""


class Bottleneck(Enum):
    """What a part of a step is spent on."""

    LOADER = "loader"
    """The host waits for the next batch."""
    COPIES = "copies"
    """Bytes go between host and device, or the host waits until they have."""
    SYNCS = "syncs"
    """The host waited for the GPU, and has prepared nothing for it meanwhile."""
    LAUNCHES = "launches"
    """The host works and launches kernels, later than the GPU is ready for them."""
    COMMUNICATION = "communication"
    """A collective runs and nothing computes."""
    GPU = "gpu"
    """Kernels compute."""
    HOST = "host"
    """All else that a step does where host and device are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a step, and the place where most of it is lost.

    ``percent`` is the share of the step that goes with it, ``None`` on a device that
    cannot tell; then ``per_step`` says how often it happens. ``blocked_percent`` is how
    long the host itself is blocked in it: the kernels that it waits for would have to
    run anyway, so no more than ``percent`` can be won.
    """

    bottleneck: Bottleneck
    percent: float | None = None
    blocked_percent: float = 0.0
    per_step: int = 0
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The parts of a step, what to look at first in front.

    The percentages add up to 100 where all are known. ``copying_percent`` is the share
    in which a copy runs on the GPU, beside kernels or not; ``isolated`` is the time of
    an isolated, synchronised step divided by that of one among others.
    """

    parts: tuple[Part, ...]
    copying_percent: float | None = None
    isolated: float | None = None

    @property
    def first(self) -> Part:
        """What the step waits for most."""
        return self.parts[0]
