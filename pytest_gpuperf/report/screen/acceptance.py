"""What was accepted of a pending file or stored by a refresh, and what was not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Final

from ...model.baseline import AcceptancePlan, Drift, Kept, Leftovers, Refresh
from ...model.metrics import counted
from ...model.verdict import Outcome, TestVerdict
from ..command import DEFAULT_INVOCATION, Invocation, prune_command, refresh_command
from ..document import labelled, uncut, wrapped
from ..headline import title
from ..numbers import each, format_apart, format_change, join_fitting, metric_named
from .counts import MOST_NAMES, named
from .summary import NO_VALUE, Line, LineRole, as_lines, table


# Lines about baselines of tests that are gone.


def leftover_lines(
    found: Leftovers, baseline_file: str, new: Collection[str] = ()
) -> tuple[Line, ...]:
    """Name what could be removed, or is now one of the *new* calls; removals are listed elsewhere."""
    if not found.gone or found.pruned:
        return ()
    number = len(found.gone)
    entries = counted(number, "entry")
    verb, them = ("has", "it") if number == 1 else ("have", "them")
    text = (
        f"gpuperf: {entries} of {baseline_file} {verb} no test any more, "
        f"--gpuperf-update=all removes {them}: {join_fitting(found.gone, MOST_NAMES)}"
    )
    return _warned("; ".join((text, *_renamed(found.gone, new))))


def _renamed(gone: Sequence[str], new: Collection[str]) -> Iterator[str]:
    """Ask for each call that is *gone* whether it is the only *new* one like it."""
    for old in gone:
        file, _, name = old.partition("::")
        alike = [n for n in new if n.startswith(f"{file}::") or n.endswith(f"::{name}")]
        if len(alike) == 1:
            yield f"is {old} now {alike[0]}? Name it so in the file: nothing else compares the two"


def unmeasured_text(
    calls: Sequence[str], baseline_file: str, invocation: Invocation, *, is_strict: bool
) -> tuple[Line, ...]:
    """Name stored *calls* that their tests did not make, and passed, and both ways out."""
    command = prune_command(invocation)
    local = "" if is_strict else ", which fails in CI"
    text = (
        f"gpuperf: {counted(len(calls), 'entry')} of {baseline_file} not measured, though "
        f"the tests passed{local}: {join_fitting(calls, MOST_NAMES)}; take the gpuperf "
        f"fixture there and call gpuperf(step) as before, or remove them with: {command}"
    )
    role = LineRole.BAD if is_strict else LineRole.WARN
    return as_lines(wrapped(text), role)


def misplaced_lines(baseline_file: str, above: str) -> tuple[Line, ...]:
    """Say that the baselines of a run lie *above* its rootdir, where it saw none."""
    return _warned(
        f"gpuperf: this run saw no baselines, and there is a {baseline_file} in "
        f"{above}: pytest took this folder for its rootdir, as no pytest.ini or "
        f"pyproject.toml with a [tool.pytest] table is in {above}; run pytest there, or "
        "add one"
    )


def other_device_lines(device: str, folder: str, other: str) -> tuple[Line, ...]:
    """Say that *folder* has baselines of the kind *other*, and none of this *device*."""
    return _warned(
        f"gpuperf: no baselines of {device} in {folder}, but there are some of {other}; "
        f"to use them: pytest --gpuperf --gpuperf-device={other}"
    )


def _warned(text: str) -> tuple[Line, ...]:
    return as_lines(wrapped(text), LineRole.WARN)


def refused_lines(drifts: Sequence[Drift], insist: str) -> Iterator[str]:
    """List what drifted too far, and the command that accepts it all the same."""
    if drifts:
        yield "not accepted, too far from the last accepted value:"
        yield from (line.text for line in drift_lines(drifts))
        yield "look for the cause, or accept it with:"
        yield f"    {insist}"


def missed_lines(found: AcceptancePlan, command: str) -> Iterator[str]:
    """Say what was to be accepted and was measured too seldom, and how to measure it."""
    if found.missed:
        count = f"{found.enough} runs, which a baseline of times needs"
        yield from wrapped(
            f"not accepted, measured in fewer than {count}: "
            f"{join_fitting(found.missed, MOST_NAMES)}; measure it with:"
        )
        yield f"    {command}"


def acceptance_lines(found: AcceptancePlan) -> tuple[str, ...]:
    """Count what is and what is not accepted, and name the latter."""
    accepted = "added to, as another session" if found.adds else "accepted"
    parts = (f"{len(found.entries)} {accepted}", *_parts(found))
    return wrapped("; ".join(parts), first="gpuperf: ")


def outlook_lines(found: AcceptancePlan) -> tuple[str, ...]:
    """Count what would be accepted of what was only looked at."""
    parts = (f"`gpuperf accept` would accept {len(found.entries)}", *_parts(found))
    if found.drifted:
        parts = (*parts, "with --accept-drift it would accept these as well")
    return wrapped("; ".join(parts), first="gpuperf: nothing was written; ")


def _parts(found: AcceptancePlan) -> Iterator[str]:
    few = f"fewer than {found.enough} runs"
    yield from named(
        found.counted, f"of them with its counts and bytes alone, as {few} say no time"
    )
    yield from named(found.weak, f"of them from {few}, too few to know how it varies")
    same = sum(kept.noise is None for kept in found.kept)
    if same:
        yield f"{same} unchanged"
    if len(found.kept) > same:
        yield f"{len(found.kept) - same} kept, moved less than the noise"
    yield from named(
        found.drifted, "NOT ACCEPTED, too far from the last accepted value"
    )
    yield from named(found.missed, f"NOT ACCEPTED, measured in {few}")
    yield from named(
        found.unfit,
        "not added to: changed, disturbed, of another torch, or stored already",
    )
    left = [test for test in found.thin if test not in found.missed]
    yield from named(left, f"kept, measured in {few}")


# Values that a refresh did not store: changes within noise, and too large a drift.


KEPT_HEADER: Final = ("stored", "now", "change", "noise", "metric", "test")
DRIFT_HEADER: Final = ("accepted", "now", "drift", "allowed", "metric", "test")
LEFT: Final = 4


LEFT_ALONE: Final = (
    "  kept     the baseline is left as it was: more than a refresh stores unasked"
)
"""Ends the failure of a test that says by itself how far it drifted."""


def is_explained(drift: Drift, verdict: TestVerdict | None) -> bool:
    """Whether the failure of its test says the same."""
    return verdict is not None and any(
        v.metric == drift.metric and v.outcome is Outcome.REGRESSED
        for v in verdict.verdicts
    )


def drift_text(
    drifts: Sequence[Drift],
    *,
    nodeid: str,
    invocation: Invocation = DEFAULT_INVOCATION,
) -> str:
    """Say why a refresh of one test was refused, and how to insist on it."""
    command = refresh_command(Refresh.ALL, invocation, [nodeid], accept_drift=True)
    alike = groupby(drifts, key=lambda drift: (drift.test, drift.bound))
    return "\n".join(
        (
            *chain.from_iterable(_refusal(nodeid, *reason, d) for reason, d in alike),
            *uncut("accept", command),
        )
    )


def _refusal(
    nodeid: str, test: str, bound: str, drifts: Iterable[Drift]
) -> Iterator[str]:
    """Say of *drifts* that passed one *bound* how far each went, and why once."""
    for drift in drifts:
        metric = metric_named(drift.metric)
        anchor, now, limit = format_apart(metric, drift.anchor, drift.now, drift.limit)
        change = format_change(metric, drift.anchor, drift.now)
        now, was = f"{now}{each(metric)}", f"{anchor} ({change})"
        what = f"DRIFTED {title(drift.metric)}"
        yield f"{what}: {now}, was {was} when last accepted, allowed {limit}"
    why = (
        f"more than a refresh stores unasked ({bound}): the baseline is left as it was"
    )
    yield from labelled("why", why)
    yield from () if test == nodeid else uncut("call", test)


def kept_title(kept: Sequence[Kept], baseline_file: str) -> str:
    """Say why they were left alone; exact metrics, without noise, are unchanged."""
    reasons = {
        "unchanged" if one.noise is None else "moved less than its own noise": None
        for one in kept
    }
    return f"kept in {baseline_file}, {' or '.join(sorted(reasons, reverse=True))}:"


def kept_lines(kept: Sequence[Kept]) -> tuple[Line, ...]:
    """A row for each test that moved less than its own noise."""
    rows = [
        _moved(one.metric, one.stored, one.now, noise, one.test)
        for one in kept
        for noise in [NO_VALUE if one.noise is None else f"{100 * one.noise:.1f} %"]
    ]
    return table(KEPT_HEADER, rows, [LineRole.PLAIN] * len(rows), LEFT)


def drift_lines(drifts: Sequence[Drift]) -> tuple[Line, ...]:
    """A row for each metric that drifted too far to be stored."""
    rows = [
        _moved(one.metric, one.anchor, one.now, one.bound, one.test) for one in drifts
    ]
    return table(DRIFT_HEADER, rows, [LineRole.BAD] * len(rows), LEFT)


def _moved(
    name: str, before: float, now: float, bound: str, test: str
) -> tuple[str, ...]:
    metric = metric_named(name)
    change = format_change(metric, before, now)
    return (*format_apart(metric, before, now), change, bound, name, test)


def drifted_line(tests: Sequence[str], invocation: Invocation) -> Line:
    """Name the command that stores what drifted, once for the run."""
    command = refresh_command(Refresh.ALL, invocation, tests, accept_drift=True)
    text = (
        f"gpuperf: {counted(len(tests), 'test')} not refreshed, too far from the last "
        f"accepted value; look for the cause, or accept it with: {command}"
    )
    return Line(text, LineRole.BAD)
