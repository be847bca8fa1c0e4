"""Findings about a machine before any test is measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from .environment import DeviceKind
from .environment import DeviceSlot
from .environment import Environment
from .verdict import SuiteAcuity


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckupRequest:
    """Which device to look at, and the number of the run, from 0, that looks."""

    device: DeviceKind | None
    script: str | None = None
    number: int = 0
    seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstance:
    """Something that measuring depends on: what it ``means``, and what could be done.

    Both are empty if all is well.
    """

    subject: str
    found: str
    means: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """A device at rest, at ``slot``.

    ``unmeasured`` says per metric why the device has no number, ``refusal`` why no
    honest number can be read at all.
    """

    environment: Environment
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None
    disturbance: str | None = None
    circumstances: tuple[Circumstance, ...] = ()
    slot: DeviceSlot = field(default_factory=DeviceSlot)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGate:
    """Tests that a gate measures, in ``groups`` that share a process, and ``others``.

    They are so many ``processes``, and so many ``modules``; ``seconds`` caps one test.
    """

    groups: tuple[tuple[str, ...], ...]
    processes: int
    modules: int
    others: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCost:
    """What the first run of a gate takes: in all, at most, and before its first test.

    So many tests have a ``stored`` time, and with a process per module some seconds are
    ``saved``.
    """

    seconds: float
    most: float
    start: float
    stored: int
    saved: float
    slowest: str = ""
    slowest_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSuite:
    """The baselines of this hardware; *thin* ones have too few runs to blame anybody."""

    file: str
    tests: int = 0
    thin: tuple[str, ...] = ()
    acuity: SuiteAcuity | None = None
