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
class StoredSuite:
    """The baselines of this hardware; *thin* ones have too few runs to blame anybody."""

    file: str
    tests: int = 0
    thin: tuple[str, ...] = ()
    acuity: SuiteAcuity | None = None
