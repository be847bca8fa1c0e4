"""The first bad commit, or release of a package, for other programs: ``gpuperf bisect --json``.

``bisect_schema.json`` beside this module is its JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

from ...model.ab import AbRun
from .ab import ab_document


BISECT_SCHEMA: Final = 1
"""Version of the format."""


def bisect_document(
    what: str,
    ends: tuple[str, str],
    found: Sequence[str],
    skipped: Mapping[str, str],
    comparison: AbRun | None,
) -> dict[str, Any]:
    """Return what a search between *ends* *found*, as ``json.dumps`` takes it."""
    return {
        "schema": BISECT_SCHEMA,
        "what": what,
        "good": ends[0],
        "bad": ends[1],
        "first_bad": list(found),
        "skipped": [{"version": v, "why": why} for v, why in skipped.items()],
        "comparison": ab_document(comparison) if comparison else None,
    }
