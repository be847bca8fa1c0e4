"""The first bad commit, or release of a package, for other programs: ``gpuperf bisect --json``.

``bisect_schema.json`` beside this module is its JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Final
from typing import NamedTuple

from ...model.ab import AbRun
from .ab import ab_document


BISECT_SCHEMA: Final = 1
"""Version of the format."""


class FirstBad(NamedTuple):
    """The first one with its comparison, or all that it may be; those skipped with why."""

    versions: tuple[str, ...] = ()
    skipped: Mapping[str, str] = {}
    comparison: AbRun | None = None


def bisect_document(
    what: str, ends: tuple[str, str], worse: FirstBad | None, training: FirstBad | None
) -> dict[str, Any]:
    """Return the first between *ends* that is worse, and that trains otherwise."""
    return {
        "schema": BISECT_SCHEMA,
        "what": what,
        "good": ends[0],
        "bad": ends[1],
        **_first(worse or FirstBad()),
        "training": _first(training) if training else None,
    }


def _first(found: FirstBad) -> dict[str, Any]:
    versions, skipped, comparison = found
    return {
        "first_bad": list(versions),
        "skipped": [{"version": v, "why": why} for v, why in skipped.items()],
        "comparison": ab_document(comparison) if comparison else None,
    }
