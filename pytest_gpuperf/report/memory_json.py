"""What a program needs, as JSON for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.codec import encode
from ..model.forecast import Fit
from ..model.forecast import Forecast
from ..model.forecast import Lever


def memory_document(
    forecast: Forecast,
    levers: Mapping[Lever, Forecast | None],
    gib: float | None,
    fit: Fit | None,
) -> dict[str, Any]:
    """Return the *forecast* and those with *levers* as ``json.dumps`` takes them."""
    document: dict[str, Any] = encode(forecast)
    document["levers"] = [
        {
            "lever": lever.value,
            "allocated_bytes": None if again is None else again.allocated_bytes,
        }
        for lever, again in levers.items()
    ]
    document["gib"] = gib
    document["fit"] = None if fit is None else fit.value
    return document
