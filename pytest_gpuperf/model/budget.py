"""What an author allows: absolute ceilings and relative tolerances, as written in marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Ceilings by budget keyword, in the keyword's unit (``ms``, MiB or a count).

    That of ``speedup`` is a floor. ``None`` lifts a ceiling inherited from an outer
    scope. ``on`` names the device kinds or hardware (shell patterns) the whole mark is
    meant for; ``None`` means each keyword's own rule.
    """

    limits: Mapping[str, float | None] = field(default_factory=dict)
    on: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Changes to ignore by budget keyword: those within either of two bounds.

    ``ratios`` are relative, ``floors`` absolute in the keyword's unit. ``detect`` is
    the slowdown, a ratio, that never passes in silence.
    """

    ratios: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    detect: float | None = None
