"""What tests showed in run after run, for as long as somebody keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """One metric of one test in one run.

    ``recorded_at`` is UTC, ``2026-03-01T09:30:00Z``; ``value`` is in the metric's unit.
    ``commit`` and ``outcome``, a value of ``Outcome``, are ``None`` where nobody knows.
    """

    recorded_at: str
    commit: str | None
    value: float
    outcome: str | None
