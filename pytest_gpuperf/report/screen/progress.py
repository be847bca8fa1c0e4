"""The progress of a run in one line, and how to go on after an interrupted refresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..wrapping import text_width
from ..wrapping import wrapped
from .precision import duration


# The progress of a run in one line of a terminal.


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is being done to how many tests, and how much of it is done.

    ``run`` counts from 1, and is ``None`` for one that is not like the others; ``runs``
    is how many each test gets where that is known, and ``made_up`` how many more where
    some are disturbed. ``seconds_left`` is for all runs where their number is known,
    else for this one. ``part`` is what is done to ``test`` right now, if that is known.
    """

    doing: str
    done: int
    total: int
    run: int | None
    runs: int | None
    seconds_left: float | None
    test: str
    part: str = ""
    made_up: int = 0


def progress_text(standing: Standing) -> str:
    """Write the numbers, and the test that is measured if there is room."""
    counts = f"gpuperf: {standing.doing} {standing.done}/{standing.total} tests"
    counts += _run_and_time(standing)
    whole = ", ".join(filter(None, (counts, standing.part)))
    return _with_name(whole if len(whole) < text_width() else counts, standing.test)


def _run_and_time(standing: Standing) -> str:
    """Write the run and what is left: of one run in brackets, of all runs after it."""
    run = _run(standing) and f", {_run(standing)}"
    if standing.seconds_left is None:
        return run
    left = f"{duration(standing.seconds_left)} left"
    return f"{run} ({left})" if run and standing.runs is None else f"{run}, {left}"


def _run(standing: Standing) -> str:
    if standing.run is None:
        return ""
    runs = standing.runs
    if runs is None:
        return f"run {standing.run}"
    if standing.run > runs:
        return f"run {standing.run} of at most {runs + standing.made_up}"
    return f"run {standing.run} of {runs}"


def _with_name(start: str, test: str) -> str:
    """Add the node id, else the test's name, else nothing: no name is ever cut."""
    names = (test, test.rpartition("::")[2])
    lines = (f"{start}: {name}" for name in names)
    return next((line for line in lines if len(line) < text_width()), start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Tests of a refresh that was interrupted, by what became of them.

    ``complete`` have all their runs, ``thin`` enough to be stored; ``lost`` have fewer
    than *enough* undisturbed ones. ``failure`` says why nothing could be written.
    """

    complete: Sequence[str]
    thin: Sequence[str]
    lost: Sequence[str]
    enough: int
    failure: str = ""


def interruption_lines(kept: Interrupted, file: str, command: str) -> Sequence[str]:
    """Say what is stored in *file*, and the *command* that measures the rest."""
    if kept.failure:
        return wrapped(f"gpuperf: interrupted: {kept.failure}")
    stored, thin = len(kept.complete) + len(kept.thin), len(kept.thin)
    parts = [f"{_tests(stored)} stored in {file}" if stored else "nothing was stored"]
    if thin:
        parts.append(f"{thin} of them with {kept.enough} or more of their runs")
    if kept.lost:
        parts.append(
            f"{_tests(len(kept.lost))} not, with fewer than {kept.enough} undisturbed runs"
        )
    said = wrapped(f"gpuperf: interrupted: {', '.join(parts)}")
    return [*said, *([f"  go on    {command}"] if kept.lost else [])]


def _tests(count: int) -> str:
    return "1 test is" if count == 1 else f"{count} tests are"
