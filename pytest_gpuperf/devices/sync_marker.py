"""A location or an allowance as the name of a range, and back.

Kineto loses names that are not printable ASCII, and a quotation mark in one breaks its
JSON, so a marker is percent-encoded.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote
from urllib.parse import unquote

from ..model.finding import Location
from .allowances import Allowance
from .protocol import ALLOW_MARKER
from .protocol import LATE_MARKER
from .protocol import SYNC_MARKER


PLAIN: Final = "/:<> "
"""Characters that need no code, beside letters and digits."""

PARTS: Final = 3
"""Of a location: file, line and function."""


def marker_of(
    location: Location | None,
    innermost: Location | None = None,
    *,
    prefix: str = SYNC_MARKER,
) -> str:
    """Return the range's name: the prefix, then ``file|line|function`` of each."""
    parts = [
        part
        for place in (location, innermost)
        if place is not None
        for part in (place.file, str(place.line), place.function)
    ]
    return prefix + "|".join(
        quote(part, safe=PLAIN, errors="surrogateescape") for part in parts
    )


def location_in(marker: str) -> Location | None:
    """Return what ``marker_of`` was given; ``None`` for a name that is not whole."""
    return _location(_parts(marker)[:PARTS])


def innermost_in(marker: str) -> Location | None:
    """Return what ``marker_of`` was given beside the location, if anything."""
    return _location(_parts(marker)[PARTS:])


def _parts(marker: str) -> list[str]:
    bare = marker.removeprefix(SYNC_MARKER).removeprefix(LATE_MARKER)
    return [unquote(part, errors="surrogateescape") for part in bare.split("|")]


def _location(parts: list[str]) -> Location | None:
    if len(parts) != PARTS or not parts[1].isdigit():
        return None
    file, line, function = parts
    return Location(file=file, line=int(line), function=function)


def marker_allowing(allowance: Allowance) -> str:
    """Return the range's name: the prefix, then ``most|reason``."""
    reason = quote(allowance.reason, safe=PLAIN, errors="surrogateescape")
    return f"{ALLOW_MARKER}{allowance.most or ''}|{reason}"


def allowance_in(marker: str) -> Allowance | None:
    """Return what ``marker_allowing`` was given; ``None`` for a name that is not whole."""
    most, bar, reason = marker.removeprefix(ALLOW_MARKER).partition("|")
    if not bar or not reason or not (most.isdigit() or not most):
        return None
    return Allowance(
        reason=unquote(reason, errors="surrogateescape"),
        most=int(most) if most else None,
    )
