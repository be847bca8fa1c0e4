"""``gpuperf report``: the last run as a page, or what a command found since."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from ..baselines.store import pending_path, read, write
from ..devices.preflight import no_garbage_collection
from ..files import no_link, read_regular_text, shown_path
from ..model.baseline import Entry
from ..model.environment import Hardware
from ..model.finding import Location
from ..model.run import RESULTS_NAME
from ..report.html.contents import Contents, locations_of
from ..report.html.page import page_text
from ..report.judged_calls import judged_calls
from ..settings import ARTEFACTS
from ..visible import printed
from .shared_options import (
    add_baselines_argument,
    last_page,
    read_document,
    read_results,
    results_file,
)


REST: Final = None

NO_RUN_TO_REPORT: Final = (
    "run `pytest --gpuperf`, or audit, memory or ab first, or name the folder with "
    "its results"
)

PAGE: Final = Path(ARTEFACTS) / "report.html"
"""The file that is written by default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, what else is known, and the page."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(".gpuperf"),
        metavar="PATH",
        help=f"folder that a run left, or its {RESULTS_NAME} (default: %(default)s)",
    )
    add_baselines_argument(parser)
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
        is_here = arguments.results == PAGE.parent
        results = results_file(PAGE.parent)
        left = last_page(results) if is_here else None
        made = (
            page_text(_contents(arguments)) if left is None else read_regular_text(left)
        )
        write(arguments.out, made)
    sys.stdout.write(printed([f"report: {arguments.out}", *_instead(left, results)]))
    return 0


def _instead(left: Path | None, results: Path) -> Iterator[str]:
    """Say whose page it is, if not that of the tests, and how to get that one."""
    if left is not None:
        has_tests = results.exists()
        when = ", which came after the tests" * has_tests
        yield f"the page of the last gpuperf {left.stem}{when}"
        if has_tests:
            yield f"that of the tests: --results={results}"


def _contents(arguments: argparse.Namespace) -> Contents:
    file = results_file(arguments.results)
    results = read_results(file, NO_RUN_TO_REPORT)
    sections = judged_calls(results, str(file))
    hardware = results.head.hardware
    return Contents(
        results=results,
        sections=sections,
        stored=read(arguments.baselines, hardware).entries if hardware else {},
        pending=_pending(file, hardware) if hardware else {},
        pending_folder=shown_path(file.parent, Path.cwd()),
        baselines_folder=shown_path(arguments.baselines, Path.cwd()),
        lines=source_lines(Path.cwd(), locations_of(sections)),
    )


def _pending(file: Path, hardware: Hardware) -> Mapping[str, Entry]:
    path = pending_path(file.parent, hardware)
    return read_document(path).entries if path.exists() else {}


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
