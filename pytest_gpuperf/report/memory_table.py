"""What a program needs at its peak, what for, and what would lower it, as lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..model.finding import Finding
from ..model.finding import Location
from ..model.forecast import Fit
from ..model.forecast import Forecast
from ..model.forecast import Lever
from ..model.metric import MIB
from .findings import peak_lines
from .wrapping import broken


INDENT: Final = " " * 11


def memory_lines(
    forecast: Forecast,
    levers: Mapping[Lever, Forecast | None],
    gib: float | None,
    fit: Fit | None,
    here: Path,
) -> tuple[str, ...]:
    """Return the peak, what holds it, the *levers* that lower it most first, the *fit*.

    Paths are relative to *here*.
    """
    return (
        *_peak(forecast),
        *peak_lines([_seen_from(here, finding) for finding in forecast.findings]),
        *_levers(forecast, levers),
        *_unsure(forecast),
        *_fit(gib, fit),
    )


def _peak(forecast: Forecast) -> tuple[str, ...]:
    steps = "1 step" if forecast.steps == 1 else f"{forecast.steps} steps"
    return broken(
        f"gpuperf: {_mib(forecast.allocated_bytes)} allocated at the peak of {steps}, "
        f"{_mib(forecast.reserved_bytes)} reserved, predicted without a GPU",
        rest=INDENT,
    )


def _levers(
    forecast: Forecast, levers: Mapping[Lever, Forecast | None]
) -> Iterator[str]:
    peaks = {lever: again.allocated_bytes for lever, again in levers.items() if again}
    lowering = [lever for lever in peaks if peaks[lever] < forecast.allocated_bytes]
    for number, lever in enumerate(sorted(lowering, key=lambda lever: peaks[lever])):
        change = peaks[lever] / forecast.allocated_bytes - 1
        label = "" if number else "  levers"
        yield f"{label:<11}{_mib(peaks[lever]):>12} {change:+7.1%}  {lever.value}"
    yield from _named("no help", [lever for lever in peaks if lever not in lowering])
    yield from _named("no answer", [lever for lever in levers if lever not in peaks])


def _named(label: str, levers: Sequence[Lever]) -> tuple[str, ...]:
    if not levers:
        return ()
    names = "; ".join(lever.value for lever in levers)
    return broken(names, first=f"  {label}".ljust(13), rest=" " * 13)


def _unsure(forecast: Forecast) -> Iterator[str]:
    for note in forecast.notes:
        yield from broken(note, first="  note     ", rest=INDENT)
    for missing in forecast.not_judged:
        yield from broken(f"{missing}", first="  unsure   ", rest=INDENT)


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
