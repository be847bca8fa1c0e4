"""The progress of a run in one line, and how to go on after an interrupted refresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..wrapping import text_width, wrapped


# The progress of a run in one line of a terminal.


def progress_text(counts: str, part: str, test: str) -> str:
    """Write the *counts*, and what is done to which *test* if there is room."""
    whole = ", ".join(filter(None, (counts, part)))
    return _with_name(whole if len(whole) < text_width() else counts, test)


def duration(seconds: float) -> str:
    """Write seconds as ``40 s`` or ``3 min 20 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


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
