"""The predicted peak of a program by purpose, and what would lower it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...model.finding import Finding
from ...model.finding import Location
from ...model.forecast import Fit
from ...model.forecast import Forecast
from ...model.forecast import Saving
from ...model.metrics import MIB
from ..wrapping import broken
from .findings import peak_lines


MEMORY_INDENT: Final = " " * 11

LEAST_HELP: Final = 0.0005
"""The share of the peak that a saving saves at least: less is printed as -0.0 %."""


def memory_lines(
    forecast: Forecast,
    savings: Mapping[Saving, Forecast | None],
    gib: float | None,
    fit: Fit | None,
    here: Path,
) -> tuple[str, ...]:
    """Return the peak, its causes, the *savings* that lower it most first, the *fit*.

    Paths are relative to *here*.
    """
    return (
        *_peak(forecast),
        *peak_lines([_seen_from(here, finding) for finding in forecast.findings]),
        *_savings(forecast, savings),
        *_unsure(forecast),
        *_fit(gib, fit),
    )


def _peak(forecast: Forecast) -> tuple[str, ...]:
    steps = "1 step" if forecast.steps == 1 else f"{forecast.steps} steps"
    return broken(
        f"gpuperf: {_mib(forecast.allocated_bytes)} allocated at the peak of {steps}, "
        f"{_mib(forecast.reserved_bytes)} reserved, predicted without a GPU",
        rest=MEMORY_INDENT,
    )


def _savings(
    forecast: Forecast, savings: Mapping[Saving, Forecast | None]
) -> Iterator[str]:
    peaks = {
        saving: again.allocated_bytes for saving, again in savings.items() if again
    }
    helps = (1 - LEAST_HELP) * forecast.allocated_bytes
    lowering = [saving for saving in peaks if peaks[saving] < helps]
    for number, saving in enumerate(sorted(lowering, key=lambda saving: peaks[saving])):
        change = peaks[saving] / forecast.allocated_bytes - 1
        label = "" if number else "  savings"
        yield f"{label:<11}{_mib(peaks[saving]):>12} {change:+7.1%}  {saving.value}"
    yield from _named("no help", [saving for saving in peaks if saving not in lowering])
    yield from _named(
        "no answer", [saving for saving in savings if saving not in peaks]
    )


def _named(label: str, savings: Sequence[Saving]) -> tuple[str, ...]:
    if not savings:
        return ()
    names = "; ".join(saving.value for saving in savings)
    return broken(names, first=f"  {label}".ljust(13), rest=" " * 13)


def _unsure(forecast: Forecast) -> Iterator[str]:
    for note in forecast.notes:
        yield from broken(note, first="  note     ", rest=MEMORY_INDENT)
    for missing in forecast.not_judged:
        yield from broken(f"{missing}", first="  unsure   ", rest=MEMORY_INDENT)


def _fit(gib: float | None, fit: Fit | None) -> tuple[str, ...]:
    if gib is None or fit is None:
        return ()
    return (f"gpuperf: {fit.value} in {gib:g} GiB",)


def _seen_from(here: Path, finding: Finding) -> Finding:
    return replace(
        finding,
        location=_relative(here, finding.location),
        innermost=_relative(here, finding.innermost),
        forward=_relative(here, finding.forward),
    )


def _relative(here: Path, location: Location | None) -> Location | None:
    if location is None or not location.file.startswith(f"{here}{os.sep}"):
        return location
    return replace(location, file=os.path.relpath(location.file, here))


def _mib(nbytes: int) -> str:
    return f"{nbytes / MIB:.1f} MiB"
