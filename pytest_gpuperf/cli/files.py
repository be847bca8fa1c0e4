"""Reads the files that a run left in its folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from ..baselines.format import RESTORE_FILE, loads
from ..errors import BaselineError, ErrorId, UsageError
from ..files import read_regular_text
from ..model.baseline import Baselines
from ..model.finding import Location
from ..model.run import RESULTS_NAME, Results
from ..report import json as results_json


# Lines of a project's own source, as they are now.


def source_lines(
    root: Path, locations: Iterable[Location]
) -> dict[tuple[str, int], str]:
    """Read the lines that *locations* name, of Python files below *root* only.

    The locations come from a file that anybody may have written. It must not make a
    report show other files of this machine.
    """
    places = sorted({(at.file, at.line) for at in locations})
    return {
        (file, number): line
        for file, found in groupby(places, key=lambda place: place[0])
        for number, line in _lines(root, file, {number for _, number in found})
    }


def _lines(root: Path, file: str, wanted: set[int]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_source_text(root, file).split("\n"), start=1):
        if number in wanted and line.strip():
            yield number, line.rstrip()


def _source_text(root: Path, file: str) -> str:
    try:
        # Resolved first: `..` and links must not lead out of the project.
        path = (root / file).resolve()
        if path.suffix != ".py" or not path.is_relative_to(root.resolve()):
            return ""
        return read_regular_text(path)
    except (OSError, ValueError, RuntimeError):  # no text, no name, a loop of links
        return ""


# The stored baselines, as the commands name and read them.


def add_baselines_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--baselines``, the committed folder."""
    parser.add_argument(
        "--baselines",
        type=Path,
        default=Path("baselines"),
        metavar="DIR",
        help="folder of the baselines (default: %(default)s)",
    )


def read_document(path: Path, way_out: str = RESTORE_FILE) -> Baselines:
    """Read one baseline file; raises ``BaselineError`` if it is none.

    *way_out* says what to do then.
    """
    try:
        text = read_regular_text(path)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read ({error}); expected a baseline file"
        raise BaselineError(msg, ErrorId.GP501) from error
    return loads(text, str(path), way_out)


def results_file(path: Path) -> Path:
    """Return the file of results that *path* names, or the one in that folder."""
    return path / RESULTS_NAME if path.is_dir() else path


def read_results(file: Path, absent: str) -> Results:
    """Read *file*; *absent* says why there may be none.

    Raises ``UsageError`` if it cannot be read or contains no results.
    """
    text = _text(file, results_json.EXPECTED_RESULTS, absent)
    return results_json.loads(text, str(file))


def _text(file: Path, expected: str, absent: str) -> str:
    try:
        return read_regular_text(file)
    except FileNotFoundError:
        msg = f"{file}: there is no such file; {absent}"
    except OSError as error:
        msg = f"{file}: cannot be read, {(error.strerror or str(error)).lower()}; {expected}"
    except UnicodeDecodeError:
        msg = f"{file}: not UTF-8 text; {expected}"
    raise UsageError(msg, ErrorId.GP527) from None
