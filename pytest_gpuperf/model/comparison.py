"""How two steps compare: their times, and what each of them counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from enum import Enum


class Answer(Enum):
    """What a comparison says of ``after``, seen from ``before``.

    ``MORE`` asks for more of the same evidence; nobody but the judge's driver sees it.
    """

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    MORE = "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The time of ``before`` against that of ``after``, interleaved in one process.

    ``speedup`` is the time of ``before`` divided by that of ``after``; ``low`` and
    ``high`` bound it with 95 % confidence. ``before_ms`` and ``after_ms`` are lower
    quartiles of the time of a step. A number is ``None`` where there is too little
    evidence for it. ``p_value`` belongs to the hypothesis that the verdict rejects.
    ``smallest_slowdown`` is the ratio that this much evidence would have shown nine
    times in ten. ``quads`` and ``steps`` count what was timed and used, both sides
    together.
    """

    verdict: Answer
    why: str
    tolerance: float
    detect: float
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    before_ms: float | None = None
    after_ms: float | None = None
    p_value: float | None = None
    smallest_slowdown: float | None = None
    quads: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What two steps showed side by side.

    ``before`` and ``after`` are exact metrics by name. ``unmeasured`` says of every
    metric that has no number on one side or on both why that is. ``training`` says
    what agreed where the two were to do the same training, and is empty elsewhere.
    """

    time: Comparison | None = None
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    training: str = ""
