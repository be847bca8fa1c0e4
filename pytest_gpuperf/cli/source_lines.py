"""Lines of a project's own source, as they stand now."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from ..model.finding import Location


def source_lines(
    root: Path, locations: Iterable[Location]
) -> dict[tuple[str, int], str]:
    """Read the lines that *locations* name; what is no Python below *root* is left out.

    The locations come from a file that anybody may have written: no other file of this
    machine is to be shown by them.
    """
    places = sorted({(at.file, at.line) for at in locations})
    return {
        (file, number): line
        for file, found in groupby(places, key=lambda place: place[0])
        for number, line in _lines(root, file, {number for _, number in found})
    }


def _lines(root: Path, file: str, wanted: set[int]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_text(root, file).split("\n"), start=1):
        if number in wanted and line.strip():
            yield number, line.strip()


def _text(root: Path, file: str) -> str:
    try:
        path = (root / file).resolve()
        if path.suffix != ".py" or not path.is_relative_to(root.resolve()):
            return ""
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError):  # no text, no name, a loop of links
        return ""
