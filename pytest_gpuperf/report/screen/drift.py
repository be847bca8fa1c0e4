"""Values that a refresh did not store: changes within noise, and too large a drift."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from ...model.baseline import Drift, Kept, Refresh
from ..command import DEFAULT_INVOCATION, Invocation, refresh_command
from ..headline import title
from ..numbers import each, format_apart, format_change, metric_named
from ..wrapping import labelled, uncut
from .summary import Line, LineRole, table


KEPT_HEADER: Final = ("stored", "now", "change", "noise", "metric", "test")
DRIFT_HEADER: Final = ("accepted", "now", "drift", "allowed", "metric", "test")
LEFT: Final = 4


def drift_text(
    drifts: Sequence[Drift],
    *,
    nodeid: str,
    invocation: Invocation = DEFAULT_INVOCATION,
) -> str:
    """Say why a refresh of one test was refused, and how to insist on it."""
    command = refresh_command(Refresh.ALL, invocation, [nodeid], accept_drift=True)
    return "\n".join(
        (
            *chain.from_iterable(_refusal(drift, nodeid) for drift in drifts),
            *uncut("accept", command),
        )
    )


def _refusal(drift: Drift, nodeid: str) -> tuple[str, ...]:
    metric = metric_named(drift.metric)
    anchor, now, limit = format_apart(metric, drift.anchor, drift.now, drift.limit)
    change = format_change(metric, drift.anchor, drift.now)
    now, was = f"{now}{each(metric)}", f"{anchor} ({change})"
    what = f"DRIFTED {title(drift.metric)}"
    return (
        f"{what}: {now}, was {was} when last accepted, allowed {limit}",
        *labelled(
            "why",
            f"more than a refresh stores unasked ({drift.bound}): the baseline is left "
            "as it was",
        ),
        *(() if drift.test == nodeid else uncut("call", drift.test)),
    )


def kept_title(kept: Sequence[Kept], baseline_file: str) -> str:
    """Say why they were left alone; exact metrics, without noise, are unchanged."""
    reasons = {
        "unchanged" if one.noise is None else "moved less than its own noise": None
        for one in kept
    }
    return f"kept in {baseline_file}, {' or '.join(sorted(reasons, reverse=True))}:"


def kept_lines(kept: Sequence[Kept]) -> tuple[Line, ...]:
    """A row for each test that moved less than its own noise."""
    return _table(KEPT_HEADER, [_kept_cells(one) for one in kept], LineRole.PLAIN)


def _kept_cells(kept: Kept) -> tuple[str, ...]:
    metric = metric_named(kept.metric)
    return (
        *format_apart(metric, kept.stored, kept.now),
        format_change(metric, kept.stored, kept.now),
        "-" if kept.noise is None else f"{100 * kept.noise:.1f} %",
        kept.metric,
        kept.test,
    )


def drift_lines(drifts: Sequence[Drift]) -> tuple[Line, ...]:
    """A row for each metric that drifted too far to be stored."""
    return _table(DRIFT_HEADER, [_drift_cells(one) for one in drifts], LineRole.BAD)


def _drift_cells(drift: Drift) -> tuple[str, ...]:
    metric = metric_named(drift.metric)
    return (
        *format_apart(metric, drift.anchor, drift.now),
        format_change(metric, drift.anchor, drift.now),
        drift.bound,
        drift.metric,
        drift.test,
    )


def _table(
    header: tuple[str, ...], rows: Sequence[tuple[str, ...]], role: LineRole
) -> tuple[Line, ...]:
    return table(header, rows, [role] * len(rows), LEFT)


def drifted_line(tests: Sequence[str], invocation: Invocation) -> Line:
    """Name the command that stores what drifted, once for the run."""
    one = len(tests) == 1
    subject = "1 test was" if one else f"{len(tests)} tests were"
    anchors = "its last accepted value" if one else "the last accepted values"
    command = refresh_command(Refresh.ALL, invocation, tests, accept_drift=True)
    return Line(
        text=(
            f"gpuperf: {subject} not refreshed, too far from {anchors}; look for the "
            f"cause, or accept it with: {command}"
        ),
        role=LineRole.BAD,
    )
