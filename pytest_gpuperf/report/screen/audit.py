"""Findings of an audit: what repeats, with its source and its fix."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...devices.audit_record import StepAudit, most_of
from ...devices.memory_picture import Garbage
from ...model.finding import Finding, Location, Phase
from ...model.metrics import D2H_BYTES, GARBAGE, H2D_BYTES, counted
from ..document import Block, Field, Heading, Place, Text, below, typed_next
from ..line_syntax import with_context
from ..numbers import size_in_words
from ..remedies import Remedy, garbage_remedy, has_rewrite, moves_module, remedy_of
from .findings import badness, grows_by, late_in_words, times


COPYING: Final = frozenset({"aten::_to_copy", "aten::copy_", "aten::to"})
"""Operations that copy: once, they are those of a set-up."""

BEFORE_PACKAGE: Final = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]")

LineOf = Callable[[str, int], str]
"""Returns a line of a file, or nothing where there is none."""


def audit_blocks(
    audit: StepAudit, notes: Sequence[str], view: AuditView, command: str = ""
) -> tuple[Block, ...]:
    """Return the answer in a line, then what repeats with its source and its fix.

    What happened once follows, what is inconclusive, what was not checked, *notes*, totals and
    the *command* to type next.
    """
    steps, once = audit.steps, replace(view, steps=0)
    certain = [f for f in audit.findings if f.is_certain]
    repeated = [f for f in certain if not f.once]
    in_each = [f for f in certain if is_in_each_step(f, steps)]
    in_some = [f for f in repeated if not is_in_each_step(f, steps)]
    unsure = [f for f in audit.findings if not f.is_certain]
    at_last = [f for f in certain if f.after_last]
    at_first = [f for f in certain if f.once and not f.after_last]
    return (
        Heading(_answer(audit)),
        *_marked(audit, view),
        *_blocks("each step:" if steps > 1 else "", in_each, view),
        *_blocks("in some steps:", in_some, view),
        *_blocks("inconclusive (only a GPU can show):", unsure, view),
        *_garbage(audit, view),
        *_listed("not checked (only a GPU can show):", audit.not_checked, view),
        *_listed("compiled on a GPU, judged as eager code:", audit.as_eager, view),
        *_blocks("once, after the last step:", at_last, once),
        *_blocks("once, before the first step was over:", at_first, once),
        *(Text(f"note: {note}", rest=" " * 6) for note in with_counts(notes)),
        *_summary(audit, command, view),
    )


def garbage_of(audit: StepAudit) -> Garbage | None:
    """Return what each step leaves to the garbage collector, if it is worth a word."""
    found = audit.garbage
    return found if found and found.nbytes > GARBAGE.floor else None


MOST_GARBAGE_LINES: Final = 3


def _garbage(audit: StepAudit, view: AuditView) -> Iterator[Block]:
    """Show the lines of memory that only the collector frees, why, and what to do."""
    garbage = garbage_of(audit)
    if garbage is None:
        return
    size = size_in_words(garbage.nbytes)
    yield Heading(f"{size} per step that only Python's garbage collector frees:")
    for held in garbage.held[:MOST_GARBAGE_LINES]:
        text = f"{held.op}, {size_in_words(held.held_bytes)}"
        yield Place(view.where(held.location), view.shown(held), text)
    yield Field("kept", garbage.reason)
    yield Field("fix", garbage_remedy(garbage.reason).do)


def is_in_each_step(found: Finding, steps: int) -> bool:
    """Whether no step was without it; of a single step nothing else can be said."""
    return steps <= 1 or (not found.once and found.in_steps >= steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """How findings are shown: paths relative to ``here``, counts per each of ``steps``."""

    here: Path
    line_of: LineOf
    steps: int

    def source(self, place: Location | None) -> str:
        """Return the text of the line at *place*."""
        return self.line_of(place.file, place.line).strip() if place else ""

    def where(self, place: Location | None) -> str:
        """Write *place* as short as it can be found again."""
        return str(_relative(place, self.here) or "line unknown")

    def shown(self, found: Finding) -> Finding:
        """Return *found* with its line's source, and the innermost line behind it."""
        return replace(
            with_context(found),
            innermost=found.torch or found.innermost,
            of_steps=self.steps,
            source=self.source(found.location),
        )


def _marked(audit: StepAudit, view: AuditView) -> Iterator[Block]:
    """Say what a step is, if it is not an optimizer's."""
    text = audit.mark.sentence if audit.mark else ""
    if text:
        yield Text(f"{text} {view.where(audit.loop)}" if audit.loop else text)


# Syncs by the line of the program that led to them, and what caused them.


def _blocks(title: str, found: Iterable[Finding], view: AuditView) -> Iterator[Block]:
    """Yield each place with its source, how often and why, and what to do about it."""
    groups: dict[tuple[str, int], list[Finding]] = {}
    for each in found:
        groups.setdefault(_order(each), []).append(each)
    if groups and title:
        yield Heading(title)
    for _, causes in sorted(groups.items(), key=lambda g: _rank(*g)):
        yield from _block(sorted(causes, key=lambda f: -f.per_step), view)


def _rank(place: tuple[str, int], causes: Sequence[Finding]) -> tuple[Any, ...]:
    """Order places by what a wait can cost, then how often; what only copies once is last."""
    copies_once = all(f.once and f.op in COPYING for f in causes)
    late = min(badness(f)[5:7] for f in causes)
    return copies_once, late, -sum(f.per_step for f in causes), place


def _block(causes: Sequence[Finding], view: AuditView) -> Iterator[Block]:
    """Yield a place, and each of the causes for which it waits, the most frequent first."""
    advised = ""
    for n, cause in enumerate(causes):
        shown, said = view.shown(cause), reason_of(cause, view)
        text = said if shown.source else f"{cause.op}, {said}"
        yield below(text) if n else Place(view.where(cause.location), shown, text)
        yield from _inside(cause, view)
        # What happens once costs nothing worth changing, before the loop or after it.
        is_once = cause.once or cause.in_steps == 1 < view.steps
        fix = "" if is_once else remedy_of_sync(cause, view).do
        if fix != advised:
            yield Field("fix", fix)
        advised = fix


def remedy_of_sync(found: Finding, view: AuditView) -> Remedy:
    """Return what to do, by the program's line; by a library's where that waits."""
    remedy = remedy_of(view.shown(found))
    if remedy is None:
        msg = "a sync has a remedy, or the row that says that none is known"
        raise AssertionError(msg)
    return remedy


def reason_of(found: Finding, view: AuditView) -> str:
    """Say how often it waits, in which part of a step, and why."""
    # A line of torch says it itself: neither a scale nor a norm is the optimizer's.
    is_named = found.torch is not None and found.phase is Phase.OPTIMIZER
    unusual = None if is_named or found.phase is Phase.FORWARD else found.phase
    part = f" in the {unusual.value}" if unusual else ""
    said = f"{_often(found, view.steps)}{part}: {found.reason}"
    late = late_in_words(replace(found, of_steps=view.steps))
    return f"{said}, {late}" if late else said


def _inside(found: Finding, view: AuditView) -> Iterator[Block]:
    """Name the libraries' lines behind the program's, and the forward of a backward."""
    for inner in (found.innermost, found.torch):
        if inner is not None and not (inner is found.torch and moves_module(found)):
            source = view.source(inner)
            where = view.where(inner)
            yield Field("inside", f"{where}: {source}" if source else where)
    if found.forward not in {None, found.location}:
        yield Field("of", view.where(found.forward))


def _often(found: Finding, steps: int) -> str:
    """Say how often: per step, or how often in how many."""
    if found.once or steps <= 1:
        return times(found.per_step)
    if not is_in_each_step(found, steps):
        return f"{times(found.per_step)}, in {found.in_steps} of {steps} steps"
    each, rest = divmod(found.per_step, steps)
    return f"{times(found.per_step)} in {steps} steps" if rest else f"{each} per step"


def _relative(place: Location | None, here: Path) -> Location | None:
    if place is None:
        return None
    file = place.file.removeprefix(f"{here}{os.sep}")
    return replace(place, file=BEFORE_PACKAGE.sub("", file))


def _order(found: Finding) -> tuple[str, int]:
    place = found.location
    return (place.file, place.line) if place else ("", 0)


def with_counts(notes: Iterable[str]) -> Iterator[str]:
    """Yield each of *notes* once, with how often it was there if more than once."""
    for note, count in Counter(notes).items():
        yield note if count == 1 else f"{note} ({times(count)})"


def _listed(
    title: str, unchecked: Iterable[Finding], view: AuditView
) -> Iterator[Block]:
    """Yield what was not checked: each line, operation and reason once."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for item in unchecked:
        where = view.where(item.location)
        alike.setdefault((where, item.op or "", item.reason), []).append(item)
    if alike:
        yield Heading(title)
    for (where, op, reason), items in alike.items():
        count = sum(item.per_step for item in items)
        nowhere = replace(items[0], source="")
        yield Place(where, nowhere, f"{op}, {times(count)}: {reason}")
        yield from _inside(items[0], view)
        others = len({item.inner for item in items}) - 1
        if others:
            yield Field("", f"and on {counted(others, 'line')} more")


def _answer(audit: StepAudit) -> str:
    """Say in a line how often the CPU waits, as ``gpuperf memory`` says what is needed."""
    if not audit.touched_gpu:
        return "gpuperf: nothing ran on the GPU, so nothing was judged"
    return f"gpuperf: {'; '.join(_sums(audit))}"


def _summary(audit: StepAudit, command: str, view: AuditView) -> Iterator[Block]:
    if not audit.touched_gpu:
        return
    counts = audit.totals.counts
    yield Text(
        f"copies: {_copied(audit, H2D_BYTES.name, counts[H2D_BYTES.name])} to the GPU, "
        f"{_copied(audit, D2H_BYTES.name, counts[D2H_BYTES.name])} to the CPU"
    )
    if command:
        where = " to each step" if audit.steps > 1 else ""
        again = (f for f in audit.findings if f.is_certain and not f.once)
        tries = "; with --diff it tries fixes" * any(
            map(has_rewrite, map(view.shown, again))
        )
        yield typed_next(command, f"exits with 1 when a sync is added{where}{tries}")


def _sums(audit: StepAudit) -> Iterator[str]:
    certain = [f for f in audit.findings if f.is_certain]
    usual = [f for f in certain if f.in_steps > most_of(audit.steps)]
    lines = len({_order(f) for f in (usual if audit.steps > 1 else certain)})
    where = f" on {counted(lines, 'line')}" if lines else ""
    if audit.steps > 1:
        yield from _sums_of_steps(audit, where)
    else:
        yield f"{counted(audit.totals.syncs, 'sync')}{where}"
    inconclusive = {
        "inconclusive": audit.totals.inconclusive,
        "not checked": sum(item.per_step for item in audit.not_checked),
    }
    parts = [f"{number} {what}" for what, number in inconclusive.items() if number]
    if parts:
        yield ", ".join(parts)
    garbage = garbage_of(audit)
    if garbage is not None:
        yield f"{size_in_words(garbage.nbytes)} of garbage per step"
    if audit.growth.nbytes:
        yield grows_by(audit.growth.nbytes, audit.growth.held)


def _sums_of_steps(audit: StepAudit, where: str) -> Iterator[str]:
    """Say what most steps do, of which an average would depend on the run's length."""
    if audit.usual == audit.per_step * audit.steps:
        yield f"{counted(audit.per_step, 'sync')} per step{where}, {audit.steps} steps"
    else:
        yield f"{counted(audit.usual, 'sync')} in {audit.steps} steps{where}"
    rest = sum(audit.syncs) - audit.usual
    if rest:
        yield f"{counted(rest, 'sync')} in some steps"
    once = audit.totals.syncs - sum(audit.syncs)
    if once:
        yield f"{counted(once, 'sync')} once"


def _copied(audit: StepAudit, metric: str, total_bytes: int) -> str:
    copies = sum(copy.per_step for copy in audit.copies if metric in copy.metrics)
    return f"{copies} ({size_in_words(total_bytes)})"
