"""What is accepted of a pending file, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.refresh import Drift
from .counts import named
from .drift import drift_lines
from .wrapping import wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """How many entries are accepted and kept, and which are not, and why.

    ``drifted`` are too far from their anchors; ``thin`` would replace an entry of
    ``enough`` runs by one of fewer; ``weak`` are accepted and have fewer.
    """

    accepted: int
    kept: int
    drifted: tuple[str, ...] = ()
    thin: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    enough: int


def refused_lines(drifts: Sequence[Drift], insist: str) -> Iterator[str]:
    """List what drifted too far, and the command that accepts it all the same."""
    if drifts:
        yield "not accepted, too far from the anchor:"
        yield from (line.text for line in drift_lines(drifts))
        yield "look for the cause, or accept it with:"
        yield f"    {insist}"


def acceptance_lines(found: Acceptance, prefix: str) -> tuple[str, ...]:
    """Count what is and what is not accepted, and name the latter."""
    return wrapped("; ".join(_parts(found)), first=prefix)


def _parts(found: Acceptance) -> Iterator[str]:
    few = f"fewer than {found.enough} runs"
    yield f"{found.accepted} accepted"
    yield from named(found.weak, f"of them from {few}, too few to know how it varies")
    if found.kept:
        yield f"{found.kept} kept, moved less than the noise"
    yield from named(found.drifted, "NOT ACCEPTED, too far from the anchor")
    yield from named(
        found.thin, f"kept, only measured in {few} (`gpuperf refresh` measures more)"
    )
