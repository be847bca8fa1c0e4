"""How far a run is, in one line of a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from .effort import duration
from .wrapping import WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is being done to how many tests, and how much of it is done.

    ``run`` counts from 1, and is ``None`` for one that is not like the others; ``runs``
    is how many each test gets where that is known. ``seconds_left`` is for all runs
    where their number is known, else for this one. ``part`` is what is done to ``test``
    right now, where that is known.
    """

    doing: str
    done: int
    total: int
    run: int | None
    runs: int | None
    seconds_left: float | None
    test: str
    part: str = ""


def progress_text(standing: Standing) -> str:
    """Tell the numbers, and the test that is measured as far as there is room."""
    left = standing.seconds_left
    of_it = "" if standing.runs or standing.run is None else " of it"
    parts = (
        f"gpuperf: {standing.doing} {standing.done}/{standing.total} tests",
        _run(standing),
        "" if left is None else f"{duration(left)} left{of_it}",
    )
    told = ", ".join(filter(None, parts))
    whole = ", ".join(filter(None, (told, standing.part)))
    return _with_name(whole if len(whole) < WIDTH else told, standing.test)


def _run(standing: Standing) -> str:
    if standing.run is None:
        return ""
    of = f" of {standing.runs}" if standing.runs else ""
    return f"run {standing.run}{of}"


def _with_name(told: str, test: str) -> str:
    """Add the node id, else the test's name, else nothing: a name that is cut is none."""
    names = (test, test.rpartition("::")[2])
    lines = (f"{told}: {name}" for name in names)
    return next((line for line in lines if len(line) < WIDTH), told)
