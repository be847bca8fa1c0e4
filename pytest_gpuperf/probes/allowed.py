"""Waits that their author allows: in a block of ``allow_sync``, or by a comment."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..devices.sync_marker import allowance_in
from ..errors import StepError
from ..model.finding import Location
from .trace import Span
from .waits import Wait


COMMENT: Final = re.compile(r"#\s*gpuperf:\s*allow-sync\b[\s:]*(?P<reason>.*?)\s*$")


def reason_on_line(location: Location | None) -> str | None:
    """Return the reason that a comment at *location* gives for a wait; ``None`` without.

    Raises ``StepError`` where the comment gives no reason.
    """
    if location is None or not location.exact:
        return None
    found = COMMENT.search(linecache.getline(location.file, location.line))
    if found is None:
        return None
    if not found["reason"]:
        msg = (
            f"{_shown(location)}: the comment allow-sync gives no reason, "
            "so it allows nothing; write one behind it, such as "
            '"# gpuperf: allow-sync the loss is logged"'
        )
        raise StepError(msg)
    return found["reason"]


def _shown(location: Location) -> str:
    """Name the line from the working directory on, where it lies below."""
    path, here = Path(location.file), Path.cwd()
    inside = path.is_relative_to(here)
    file = path.relative_to(here).as_posix() if inside else location.file
    return f"{file}:{location.line}"


def with_allowances(waits: Iterable[Wait], blocks: Sequence[Span]) -> list[Wait]:
    """Say of each wait whether it is allowed, in the order of time.

    A wait belongs to the innermost of the *blocks* around it, on whatever thread, that
    still allows one.
    """
    used: Counter[Span] = Counter()
    return [
        _judged(wait, blocks, used) for wait in sorted(waits, key=lambda w: w.at_us)
    ]


def _judged(wait: Wait, blocks: Sequence[Span], used: Counter[Span]) -> Wait:
    reason = reason_on_line(wait.cause.location)
    if reason is None:
        reason = _reason_of_block(wait, blocks, used)
    return replace(wait, cause=replace(wait.cause, allowed=reason))


def _reason_of_block(
    wait: Wait, blocks: Sequence[Span], used: Counter[Span]
) -> str | None:
    around = [b for b in blocks if b.start_us <= wait.at_us <= b.end_us]
    for block in sorted(around, key=lambda b: -b.start_us):
        allowance = allowance_in(block.name)
        if allowance is not None and allowance.covers(used[block] + 1) > used[block]:
            used[block] += 1
            return allowance.reason
    return None
