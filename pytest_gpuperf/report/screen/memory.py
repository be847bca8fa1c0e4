"""The predicted peak of a program: does it fit, what is it for, what would lower it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...judge.budget import CONTEXT_BYTES, fit_of, grown_at
from ...model.finding import CUBLAS_WORKSPACES, Finding, FindingKind
from ...model.measurement import Fit, Forecast, Saving
from ...model.metrics import counted
from ..document import Block, Field, Heading, Place, Text, typed_next
from ..numbers import size_in_words
from ..remedies import SAVING_REMEDIES
from .audit import AuditView
from .findings import OUTLIVING, badness, fix_fields, grows_by, place_of


MEMORY_DIGITS: Final = 3
LEAST_HELP: Final = 0.0005
"""The share of the peak that a saving saves at least: less is printed as -0.0 %."""

MOST_HOLDERS: Final = 3
"""Lines that take memory and are shown, but with ``-v``."""

USUAL_GPUS: Final = (8, 16, 24, 48, 80, 141)
"""GiB of GPUs that are sold."""

SET_UP: Final = frozenset(
    {"parameters", "buffers", "optimizer state", CUBLAS_WORKSPACES}
)
"""Purposes of memory that is taken once; the rest is taken in each step."""

FIT_IN_WORDS: Final = {
    Fit.FITS: "it fits in {} GiB",
    Fit.TOO_LARGE: "it does not fit in {} GiB",
    Fit.TOO_CLOSE: "too close to tell if it fits in {} GiB",
    Fit.UNKNOWN: "only a GPU can tell if {} GiB is enough",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """How a forecast is shown: of which program, its ``places``, and how much of it.

    ``fit`` says whether it fits a GPU of so many ``gib``, if one was asked about.
    ``command`` returns what to type to ask about a GPU of so many GiB, or with ``None`` to
    see everything. Savings are ``untried`` if the peak is too small to need one.
    """

    name: str
    places: AuditView
    command: Callable[[float | None], str]
    gib: float | None = None
    fit: Fit | None = None
    verbose: bool = False
    untried: bool = False


LEAST_TRIED_BYTES: Final = 2**30
"""Peak below which nobody needs to lower it: the smallest usual GPU has eight times that."""


def is_large(forecast: Forecast) -> bool:
    """Whether what lowers the peak is worth a run, if nobody asks for it."""
    return forecast.allocated_bytes >= LEAST_TRIED_BYTES


def smallest_gpu(forecast: Forecast) -> int | None:
    """Return the GiB of the smallest usual GPU that *forecast* fits."""
    fitting = (gib for gib in USUAL_GPUS if fit_of(forecast, gib) is Fit.FITS)
    return next(fitting, None)


Savings = Mapping[Saving, Forecast | None]
"""The forecast with each, if the program still runs."""


def memory_blocks(
    forecast: Forecast, savings: Savings, view: MemoryView
) -> tuple[Block, ...]:
    """Return the answer, what the memory of a step is for and where, and what lowers it.

    Memory from before the first step follows, how the peak was found, and what to type
    next.
    """
    return (
        Heading(_answer(forecast, view)),
        *_growth(forecast, view.gib),
        *_uncollected(forecast),
        *_purposes("per step: ", forecast, set_up=False),
        *_places(forecast, view),
        *_savings(forecast, savings, view),
        *_purposes("once, before the first step was over: ", forecast, set_up=True),
        *_basis(forecast, view.gib),
        *_next(forecast, view),
    )


def _answer(forecast: Forecast, view: MemoryView) -> str:
    kept = sum(finding.workspace_bytes for finding in forecast.findings)
    peak = _size(forecast.allocated_bytes - kept)
    cublas = f" and {_size(kept)} of cuBLAS" if kept else ""
    least = smallest_gpu(forecast)
    if view.gib is not None and view.fit is not None:
        fits = f"; {FIT_IN_WORDS[view.fit].format(f'{view.gib:g}')}"
    else:
        fits = f"; a GPU with {least} GiB is enough" if least else ""
    about = "about " if forecast.not_checked or forecast.as_eager else ""
    return f"{view.name} needs {about}{peak}{cublas} at its peak{fits}"


def _growth(forecast: Forecast, gib: float | None) -> Iterator[Block]:
    """Say how fast it grows, from where, and at which step it would be too large."""
    if not forecast.growth_bytes:
        return
    left = [f for f in forecast.findings if f.kind is FindingKind.LEFT]
    text = grows_by(forecast.growth_bytes, left)
    if forecast.was_ended:
        room = USUAL_GPUS[-1] if gib is None else gib
        step = f"{grown_at(forecast, room):,}"
        text += f": out of memory at step {step} of {room:g} GiB, if it goes on"
    yield Text(text)


def _uncollected(forecast: Forecast) -> Iterator[Block]:
    if forecast.uncollected_bytes > forecast.allocated_bytes:
        yield Text(
            f"without a garbage collection, {forecast.steps} steps need "
            f"{_size(forecast.uncollected_bytes)}"
        )


def _purposes(title: str, forecast: Forecast, *, set_up: bool) -> tuple[Block, ...]:
    parts = [
        f"{purpose} {_size(nbytes)}"
        for finding in forecast.findings
        for purpose, nbytes in finding.held_for
        if nbytes and (purpose in SET_UP) is set_up
    ]
    return (Text(f"{title}{', '.join(parts)}", rest="  "),) if parts else ()


def _places(forecast: Forecast, view: MemoryView) -> Iterator[Block]:
    """Show the line of the peak, then the lines with memory in use there."""
    merged: dict[object, list[Finding]] = {}
    peaks = [f for f in forecast.findings if f.kind is FindingKind.PEAK]
    others = (f for f in forecast.findings if f.kind is not FindingKind.PEAK)
    for finding in (*peaks, *sorted(others, key=badness)):
        merged.setdefault(_line(finding), []).append(view.places.shown(finding))
    shown = list(merged.values())
    most = len(shown) if view.verbose else MOST_HOLDERS
    for group in shown[:most]:
        yield from _place(group, view)
    left = len(shown) - most
    yield Field("", f"and {left} more, with -v" if left > 0 else "")


def _line(finding: Finding) -> object:
    place = finding.location
    return (place.file, place.line) if place else finding.kind


def _place(group: Sequence[Finding], view: MemoryView) -> Iterator[Block]:
    first, text = group[0], "; ".join(_uses(group, view))
    where = view.places.where(first.location) if first.location else place_of(first)
    yield Place(where, first, text, called(first))
    yield from fix_fields(*(f for f in group if f.kind in OUTLIVING))


def _uses(group: Sequence[Finding], view: MemoryView) -> Iterator[str]:
    holders = [f for f in group if f.kind is FindingKind.MEMORY]
    for peak in group:
        if peak.kind is FindingKind.PEAK:
            yield f"the peak, in the {peak.phase.value}" if peak.phase else "the peak"
    garbage = sum(f.held_bytes for f in group if f.kind is FindingKind.GARBAGE)
    if garbage:
        yield f"{_size(garbage)} per step that only the garbage collector frees"
    left = sum(f.held_bytes for f in group if f.kind is FindingKind.LEFT)
    if left:
        yield f"{_size(left)} leaked by each step"
    if holders and not view.verbose:
        yield f"{_size(sum(f.held_bytes for f in holders))} taken here"
        return
    for holder in holders:
        blocks = counted(holder.per_step, "block")
        yield f"{_size(holder.held_bytes)} taken here by {holder.op}, in {blocks}"


def called(finding: Finding) -> tuple[int, int] | None:
    """Return where its operation is called in its line, and how long that is."""
    name = re.escape((finding.op or "").rpartition("::")[2])
    found = list(re.finditer(rf"\b{name}\(", finding.source)) if name else []
    return (found[0].start(), len(found[0][0]) - 1) if len(found) == 1 else None


def _savings(forecast: Forecast, savings: Savings, view: MemoryView) -> Iterator[Block]:
    peaks = {
        saving: again.allocated_bytes for saving, again in savings.items() if again
    }
    helps = (1 - LEAST_HELP) * forecast.allocated_bytes
    lowering = sorted((s for s in peaks if peaks[s] < helps), key=peaks.__getitem__)
    for saving in lowering:
        change = 100 * (peaks[saving] / forecast.allocated_bytes - 1)
        enough = _enough(forecast, savings[saving], view.gib)
        peak = _size(peaks[saving])
        text = f"{SAVING_REMEDIES[saving]}: {peak} ({change:.1f} %{enough})"
        yield Field("fix" if saving is lowering[0] else "", text)
    if view.verbose:
        same = [saving for saving in peaks if saving not in lowering]
        yield Field("no help", _named(same))
        failed = [saving for saving in savings if saving not in peaks]
        yield Field("failed", _named(failed))
    elif savings and not lowering:
        yield Field("fix", "no known one lowers the peak; -v lists what was tried")
    elif view.untried:
        yield Field("fix", "none tried for a peak below 1 GiB; -v tries all")


def _enough(forecast: Forecast, again: Forecast | None, gib: float | None) -> str:
    """Say that a saving makes the program fit that did not."""
    if gib is None or again is None or fit_of(forecast, gib) is Fit.FITS:
        return ""
    return ", then it fits" if fit_of(again, gib) is Fit.FITS else ""


def _named(savings: Iterable[Saving]) -> str:
    return "; ".join(SAVING_REMEDIES[saving] for saving in savings)


def _basis(forecast: Forecast, gib: float | None) -> Iterator[Block]:
    """Say how the peak was found, and what makes it a guess."""
    steps = counted(forecast.steps, "step")
    reserved = _size(forecast.reserved_bytes)
    cuda = "" if gib is None else f", CUDA itself {_size(CONTEXT_BYTES)}"
    yield Text(
        f"predicted from {steps} on the simulated GPU; torch would reserve "
        f"{reserved}{cuda}",
        rest="  ",
    )
    for note in forecast.notes:
        yield Field("note", note)
    for missing in forecast.not_checked:
        yield Field("note", f"inconclusive: {missing}")


def _next(forecast: Forecast, view: MemoryView) -> Iterator[Block]:
    least = smallest_gpu(forecast)
    if view.gib is None and least:
        yield typed_next(view.command(least), "exits with 1 if it does not fit")
    elif view.fit is not Fit.FITS and not view.verbose and forecast.findings:
        listed = "lists each line that takes memory, and what was tried"
        yield typed_next(view.command(None), listed)


def _size(nbytes: int) -> str:
    return size_in_words(nbytes, MEMORY_DIGITS)
