"""``gpuperf report``: the last run as a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from ..baselines.store import pending_path
from ..baselines.store import read
from ..baselines.store import write
from ..devices.preflight import no_garbage_collection
from ..files import no_link
from ..history.index import HISTORY_INDEX_FILE as INDEX_FILE
from ..history.index import HistoryIndex
from ..history.place import place_at
from ..model.baseline import Entry
from ..model.environment import Hardware
from ..model.history import Point
from ..model.results import RESULTS_NAME
from ..model.results import SAMPLES_FILE
from ..report.html.contents import MOST_POINTS
from ..report.html.contents import Contents
from ..report.html.contents import History
from ..report.html.contents import locations_of
from ..report.html.contents import sections_of
from ..report.html.page import page_text
from ..report.screen.history import left_out_lines
from ..settings import ARTEFACTS
from ..visible import printed
from .files import add_baselines_argument
from .files import add_history_argument
from .files import ask_project
from .files import history_at
from .files import read_document
from .files import read_results
from .files import read_samples
from .files import results_file
from .files import source_lines


REST: Final = None

NO_RUN_TO_REPORT: Final = (
    "run `pytest --gpuperf` first, or name the folder that it left"
)

PAGE: Final = Path(ARTEFACTS) / "report.html"
"""The file that is written by default."""

INDEX: Final = Path(ARTEFACTS) / INDEX_FILE
"""Index of the history, built once and kept for the next time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, what is known beside it, and the page."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(".gpuperf"),
        metavar="PATH",
        help=f"folder that a run left, or its {RESULTS_NAME} (default: %(default)s)",
    )
    add_baselines_argument(parser)
    add_history_argument(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=PAGE,
        metavar="FILE",
        help="file to write (default: %(default)s)",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Write the page; what came of the run is no failure of this command."""
    if arguments.out == PAGE:  # a name of our own; another is the user's to choose
        no_link(PAGE.parent)
    with no_garbage_collection():  # looking for some among a million strings
        write(arguments.out, page_text(_contents(arguments)))
    sys.stdout.write(printed([f"report: {arguments.out}"]))
    return 0


def _contents(arguments: argparse.Namespace) -> Contents:
    file = results_file(arguments.results)
    results = read_results(file, NO_RUN_TO_REPORT)
    sections = sections_of(results, str(file))
    hardware = results.head.hardware
    return Contents(
        results=results,
        sections=sections,
        stored=read(arguments.baselines, hardware).entries if hardware else {},
        pending=_pending(file, hardware) if hardware else {},
        samples=read_samples(file) if file.with_name(SAMPLES_FILE).exists() else {},
        history=_history(arguments.history, hardware) if hardware else {},
        pending_folder=_from_here(file.parent),
        baselines_folder=_from_here(arguments.baselines),
        lines=source_lines(Path.cwd(), locations_of(sections)),
    )


def _from_here(folder: Path) -> str:
    """Return *folder* relative to here: a page names no folder above."""
    here = Path.cwd()
    inside = folder.is_relative_to(here)
    return (folder.relative_to(here) if inside else folder).as_posix()


def _history(given: str | None, hardware: Hardware) -> History:
    """Read the newest points of each test; say on standard error what was no history."""
    location = _location(given)
    if location is None:
        return {}
    index = HistoryIndex(place_at(location), location, INDEX)
    with closing(index):
        lines = left_out_lines(index.left_out())
        sys.stderr.write(printed(lines))
        return _points(index, hardware)


def _location(given: str | None) -> str | None:
    """Return where the history lies: as *given*, else as the project says."""
    if given is None:
        return ask_project().history
    return history_at(given)


def _points(index: HistoryIndex, hardware: Hardware) -> History:
    found: dict[str, dict[str, tuple[Point, ...]]] = {}
    for series in index.series():
        if series.hardware == hardware.key:
            points = index.points(series, MOST_POINTS)
            found.setdefault(series.test, {})[series.metric] = points
    return found


def _pending(file: Path, hardware: Hardware) -> Mapping[str, Entry]:
    path = pending_path(file.parent, hardware)
    return read_document(path).entries if path.exists() else {}
