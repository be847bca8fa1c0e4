"""The lines that say what was accepted of a pending file, and what was not."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from ...model.baseline import Drift
from ...model.baseline import Leftovers
from ...model.units import counted
from ..command import Invocation
from ..command import prune_command
from ..numbers import join_fitting
from ..wrapping import wrapped
from .counts import MOST_NAMES
from .counts import named
from .drift import drift_lines
from .summary import Line
from .summary import LineRole
from .summary import as_lines


# Lines about baselines of tests that are gone.


def leftover_lines(found: Leftovers, baseline_file: str) -> tuple[Line, ...]:
    """Name what could be removed, or why nothing was; removals are listed elsewhere."""
    if found.obstacle:
        return _warned(f"gpuperf: nothing was pruned: {found.obstacle}")
    if not found.gone or found.pruned:
        return ()
    number = len(found.gone)
    entries = counted(number, "entry")
    verb, them = ("has", "it") if number == 1 else ("have", "them")
    text = (
        f"gpuperf: {entries} of {baseline_file} {verb} no test any more, "
        f"--gpuperf-prune removes {them}: {join_fitting(found.gone, MOST_NAMES)}"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """How many entries are accepted and kept, and which are not, and why.

    ``same`` are as they were, in what is exact. ``drifted`` are too far from the last accepted values; ``thin`` would replace an entry of
    ``enough`` runs by one of fewer, ``missed`` are those of them that were to be
    accepted; ``weak`` are accepted and have fewer; of ``counted`` only counts and bytes are.
    ``adds`` says that runs are only added, and ``unfit`` are those that are none of the
    stored code, or disturbed.
    """

    accepted: int
    kept: int
    same: int = 0
    drifted: tuple[str, ...] = ()
    thin: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    adds: bool = False
    enough: int


def refused_lines(drifts: Sequence[Drift], insist: str) -> Iterator[str]:
    """List what drifted too far, and the command that accepts it all the same."""
    if drifts:
        yield "not accepted, too far from the last accepted value:"
        yield from (line.text for line in drift_lines(drifts))
        yield "look for the cause, or accept it with:"
        yield f"    {insist}"


def missed_lines(found: Acceptance, command: str) -> Iterator[str]:
    """Say what was to be accepted and was measured too seldom, and how to measure it."""
    if found.missed:
        count = f"{found.enough} runs, which a baseline of times needs"
        yield from wrapped(
            f"not accepted, measured in fewer than {count}: "
            f"{join_fitting(found.missed, MOST_NAMES)}; measure it with:"
        )
        yield f"    {command}"


def acceptance_lines(found: Acceptance) -> tuple[str, ...]:
    """Count what is and what is not accepted, and name the latter."""
    accepted = "added to, as another occasion" if found.adds else "accepted"
    parts = (f"{found.accepted} {accepted}", *_parts(found))
    return wrapped("; ".join(parts), first="gpuperf: ")


def outlook_lines(found: Acceptance) -> tuple[str, ...]:
    """Count what would be accepted of what was only looked at."""
    parts = (f"`gpuperf accept` would accept {found.accepted}", *_parts(found))
    if found.drifted:
        parts = (*parts, "with --accept-drift it would accept these as well")
    return wrapped("; ".join(parts), first="gpuperf: nothing was written; ")


def _parts(found: Acceptance) -> Iterator[str]:
    few = f"fewer than {found.enough} runs"
    yield from named(
        found.counted, f"of them with its counts and bytes alone, as {few} say no time"
    )
    yield from named(found.weak, f"of them from {few}, too few to know how it varies")
    if found.same:
        yield f"{found.same} unchanged"
    if found.kept:
        yield f"{found.kept} kept, moved less than the noise"
    yield from named(
        found.drifted, "NOT ACCEPTED, too far from the last accepted value"
    )
    yield from named(found.missed, f"NOT ACCEPTED, only measured in {few}")
    yield from named(
        found.unfit,
        "not added to: changed, disturbed, of another torch, stored already, or of a "
        "gate on a CPU, which ends runs early (--gpuperf-update=evidence does not)",
    )
    left = [test for test in found.thin if test not in found.missed]
    yield from named(left, f"kept, only measured in {few}")
