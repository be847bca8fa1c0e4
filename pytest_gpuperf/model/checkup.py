"""Findings about a machine before any test is measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .environment import Environment


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
    """A device at rest.

    ``unmeasured`` says per metric why the device has no number, ``refusal`` why no
    honest number can be read at all.
    """

    environment: Environment
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None
    disturbance: str | None = None
    circumstances: tuple[Circumstance, ...] = ()
