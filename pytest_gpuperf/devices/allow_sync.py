"""``allow_sync``: marks where the author lets the host wait, and notifies the devices.

A training script imports this module outside of any measurement: it imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from ..errors import ErrorId, UsageError
from ..model.finding import Location
from .base import ALLOW_MARKER, SYNC_MARKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Syncs that do not count, at most ``most`` if it is a number, and why."""

    reason: str
    most: int | None = None

    def covers(self, syncs: int) -> int:
        """How many of *syncs* are allowed."""
        return syncs if self.most is None else min(syncs, self.most)


Listener = Callable[[Allowance], AbstractContextManager[object]]
"""Opens what lasts as long as the block does."""

_listeners: Final[list[Listener]] = []
"""One list per process: an open block allows the syncs of every thread."""


def allow_sync(n: int | None = None, reason: str = "") -> AbstractContextManager[None]:
    """Let the host wait inside the block: ``with allow_sync(1, reason="logging"):``.

    At most *n* syncs each time the block is entered, any number where it is ``None``,
    are listed with the *reason* and counted in no ``syncs``. Outside of a measurement
    it does nothing. Raises ``UsageError`` without a reason and for an *n* below 1.
    """
    _check(n, reason)
    return _allowed(Allowance(reason=reason.strip(), most=n))


def _check(n: object, reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        msg = (
            f"gpuperf.allow_sync(reason={reason!r}): expected a reason, such as "
            'reason="the loss is logged"'
        )
        raise UsageError(msg, ErrorId.GP213)
    # ``type(n)`` and not ``isinstance``: ``True`` is an int, and almost certainly a
    # mistake here.
    if n is not None and (type(n) is not int or n < 1):
        msg = (
            f"gpuperf.allow_sync({n!r}): expected a whole number of at least 1, or "
            "None for any number of syncs"
        )
        raise UsageError(msg, ErrorId.GP214)


@contextmanager
def _allowed(allowance: Allowance) -> Iterator[None]:
    with ExitStack() as heard:
        # A listener may open a range of its own, so they are closed in reverse order,
        # also when the block raises.
        for listener in _listeners:
            heard.enter_context(listener(allowance))
        yield


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Notify *listener* of each block that is entered inside the context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


# A location or an allowance as the name of a range, and back.
#
# Kineto loses names that are not printable ASCII, and a quotation mark in one breaks
# its JSON, so a marker is percent-encoded.

PLAIN: Final = "/:<> "
"""Characters that need no code, besides letters and digits."""

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
    """Return what ``marker_of`` was given; ``None`` for an incomplete name."""
    return _location(_parts(marker)[:PARTS])


def innermost_in(marker: str) -> Location | None:
    """Return what ``marker_of`` was given besides the location, if anything."""
    return _location(_parts(marker)[PARTS:])


def _parts(marker: str) -> list[str]:
    # A prefix ends with the first bar, and a file in the name has its bars encoded.
    _, _, bare = marker.partition("|")
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
    """Return what ``marker_allowing`` was given; ``None`` for an incomplete name."""
    most, bar, reason = marker.removeprefix(ALLOW_MARKER).partition("|")
    if not bar or not reason or not (most.isdigit() or not most):
        return None
    return Allowance(
        reason=unquote(reason, errors="surrogateescape"),
        most=int(most) if most else None,
    )
