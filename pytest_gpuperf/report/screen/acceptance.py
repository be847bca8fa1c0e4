"""The lines that say what was accepted of a pending file, and what was not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...model.baseline import AcceptancePlan, Drift, Leftovers
from ...model.metric import counted
from ..command import Invocation, prune_command
from ..numbers import join_fitting
from ..wrapping import wrapped
from .counts import MOST_NAMES, named
from .drift import drift_lines
from .summary import Line, LineRole, as_lines


# Lines about baselines of tests that are gone.


def leftover_lines(found: Leftovers, baseline_file: str) -> tuple[Line, ...]:
    """Name what could be removed; removals are listed elsewhere."""
    if not found.gone or found.pruned:
        return ()
    number = len(found.gone)
    entries = counted(number, "entry")
    verb, them = ("has", "it") if number == 1 else ("have", "them")
    text = (
        f"gpuperf: {entries} of {baseline_file} {verb} no test any more, "
        f"--gpuperf-update=all removes {them}: {join_fitting(found.gone, MOST_NAMES)}"
    )
    return _warned(text)


def unmeasured_text(
    calls: Sequence[str], baseline_file: str, invocation: Invocation, *, is_strict: bool
) -> tuple[Line, ...]:
    """Name stored *calls* that their tests did not make, and passed, and both ways out."""
    one = len(calls) == 1
    entries, its, has = (
        ("1 entry", "its test", "was")
        if one
        else (f"{len(calls)} entries", "their tests", "were")
    )
    there, them = ("there", "it") if one else ("in them", "them")
    command = prune_command(invocation)
    local = "" if is_strict else ", which fails in CI"
    text = (
        f"gpuperf: {entries} of {baseline_file} {has} not measured, and {its} passed"
        f"{local}: {join_fitting(calls, MOST_NAMES)}; take the gpuperf fixture {there} "
        f"and call gpuperf(step) as before, or remove {them} with: {command}"
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
    accepted = "added to, as another occasion" if found.adds else "accepted"
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
