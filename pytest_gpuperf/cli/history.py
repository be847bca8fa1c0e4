"""``gpuperf history``: shows the numbers of tests in the runs of a history."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import closing
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from ..history.index import HISTORY_INDEX_FILE
from ..history.index import HistoryIndex
from ..history.place import place_at
from ..history.place import shown
from ..judge.changepoints import LEAST_SEARCHED_RUNS
from ..judge.changepoints import MOST_RUNS_SEARCHED
from ..judge.changepoints import level_changes
from ..model.history import Course
from ..model.history import LeftOut
from ..model.history import LevelChange
from ..model.history import Point
from ..model.history import Series
from ..model.metric import MetricKind
from ..model.metrics import METRICS
from ..report.json.history import history_document
from ..report.numbers import metric_named
from ..report.screen.history import change_lines
from ..report.screen.history import course_lines
from ..report.screen.history import left_out_lines
from ..report.screen.history import overview_lines
from ..report.table import marks_for
from ..visible import printed
from .files import add_history_argument
from .files import ask_project
from .files import count
from .files import history_at
from .json_option import add_json_argument
from .json_option import print_json


REST: Final = None

LAST: Final = 20
"""Runs that are drawn by default."""

MOST_RUNS_LISTED: Final = 5
"""Runs in the table of a test, but with ``-v`` or ``--last``."""

SINCE: Final = 200
"""Runs that are searched for changes by default."""

NOWHERE: Final = (
    "no history folder is set: name it with --history, or for the whole project with "
    "the ini key gpuperf_history"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is shown of which history."""
    parser.add_argument(
        "test",
        nargs="?",
        metavar="TEST",
        help="node id, part of one, or a shell pattern (default: all tests)",
    )
    parser.add_argument(
        "--metric",
        metavar="METRIC",
        help="metric to show (default: step_ms, or the first one that there is)",
    )
    parser.add_argument(
        "--hardware", metavar="KEY", help="only runs on it, as cuda-nvidia-h200"
    )
    add_history_argument(parser)
    parser.add_argument(
        "--last",
        type=count,
        metavar="N",
        help=f"runs to draw and to list of each test (default: draw {LAST}, list "
        f"{MOST_RUNS_LISTED})",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="list every run that is drawn",
    )
    parser.add_argument(
        "--changes",
        action="store_true",
        help="show where levels changed, of every metric that is not named otherwise",
    )
    parser.add_argument(
        "--since",
        type=_searched,
        default=SINCE,
        metavar="N",
        help="runs of each test to search for changes (default: %(default)s)",
    )
    add_json_argument(parser)


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print what was asked for; a change is no failure."""
    location, artefacts = _located(arguments.history)
    index = HistoryIndex(place_at(location), location, artefacts / HISTORY_INDEX_FILE)
    with closing(index):
        chosen = _chosen(arguments, index, location)
        left_out = index.left_out()
        if arguments.json:
            print_json(_document(arguments, index, chosen, left_out))
            return 0
        lines = [*left_out_lines(left_out), *_lines(arguments, index, chosen)]
    _print(lines)
    return 0


def _print(lines: Iterable[str]) -> None:
    """Print *lines*, with characters escaped that the terminal cannot show."""
    encoding = sys.stdout.encoding or "utf-8"
    text = printed(lines)
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _located(given: str | None) -> tuple[str, Path]:
    """Return where the history is, and the ignored folder for its index."""
    if given is not None:
        return history_at(given), Path(".gpuperf")
    settings = ask_project()
    if settings.history is None:
        raise UsageError(NOWHERE, ErrorId.GP520)
    return settings.history, Path(settings.artefacts)


def _chosen(
    arguments: argparse.Namespace, index: HistoryIndex, location: str
) -> list[Series]:
    known = [s for s in index.series() if arguments.hardware in {None, s.hardware}]
    if not known:
        raise UsageError(_nothing(arguments, index, location), ErrorId.GP521)
    chosen = matching(arguments.test, known)
    if arguments.metric is not None:
        chosen = _of_metric(chosen, arguments.metric)
    is_named = arguments.changes or arguments.metric is not None
    return chosen if is_named else _main_series(chosen)


def _document(
    arguments: argparse.Namespace,
    index: HistoryIndex,
    chosen: Sequence[Series],
    left_out: Sequence[LeftOut],
) -> dict[str, Any]:
    if arguments.changes:
        changes, _ = _changes(index, chosen, arguments.since)
        return history_document(None, changes, left_out)
    courses = [_course(index, series, arguments.last or LAST) for series in chosen]
    return history_document(courses, None, left_out)


def _lines(
    arguments: argparse.Namespace, index: HistoryIndex, chosen: Sequence[Series]
) -> Iterable[str]:
    if arguments.changes:
        runs, looked_at = arguments.since, len(chosen)
        changes, too_short = _changes(index, chosen, runs)
        return change_lines(
            changes, looked_at=looked_at, runs=runs, too_short=too_short
        )
    last = arguments.last or LAST
    courses = [_course(index, series, last) for series in chosen]
    marks = marks_for(sys.stdout.encoding)
    if len(courses) == 1:
        every = arguments.verbose or arguments.last is not None
        return course_lines(courses[0], marks, last if every else MOST_RUNS_LISTED)
    return overview_lines(courses, marks)


def _nothing(arguments: argparse.Namespace, index: HistoryIndex, location: str) -> str:
    hardware = sorted({series.hardware for series in index.series()})
    if hardware:
        return (
            f"--hardware: found {arguments.hardware!r}, expected one of "
            f"{', '.join(hardware)}"
        )
    return (
        f"{shown(location)}: no run is stored there; pytest --gpuperf leaves one with "
        "--gpuperf-history"
    )


def matching(asked: str | None, known: Sequence[Series]) -> list[Series]:
    """Return the series of the tests that *asked* names.

    It is a node id, else a part of one, else a shell pattern. Raises ``UsageError``
    with the tests that are called most like it.
    """
    tests = list(dict.fromkeys(series.test for series in known))
    if asked is None:
        return list(known)
    found = (
        [test for test in tests if test == asked]
        # A part before a pattern: node ids have brackets, which a pattern would take
        # for a set.
        or [test for test in tests if asked in test]
        or [test for test in tests if fnmatchcase(test, asked)]
    )
    if not found:
        alike = get_close_matches(asked, tests, n=3, cutoff=0.0)
        msg = f"no test in the history is called {asked!r}; expected one as {', '.join(alike)}"
        raise UsageError(msg, ErrorId.GP522)
    return [series for series in known if series.test in set(found)]


def _of_metric(series: Sequence[Series], metric: str) -> list[Series]:
    found = [s for s in series if s.metric == metric]
    if not found:
        known = ", ".join(dict.fromkeys(s.metric for s in _in_order(series)))
        msg = f"--metric: found {metric!r}, expected one of {known}"
        raise UsageError(msg, ErrorId.GP522)
    return found


def _main_series(series: Sequence[Series]) -> list[Series]:
    """Take one metric a test and hardware: the first in the order of the reference."""
    found: dict[tuple[str, str], Series] = {}
    for one in _in_order(series):
        found.setdefault((one.test, one.hardware), one)
    return sorted(found.values())


def _in_order(series: Iterable[Series]) -> list[Series]:
    places = {name: place for place, name in enumerate(METRICS)}
    return sorted(series, key=lambda s: places.get(s.metric, len(places)))


def _course(index: HistoryIndex, series: Series, last: int) -> Course:
    return Course(
        series=series, points=index.points(series, last), count=index.count(series)
    )


def _changes(
    index: HistoryIndex, chosen: Sequence[Series], runs: int
) -> tuple[Sequence[LevelChange], int]:
    """Return the changes, newest first, and how many series are too short to tell."""
    courses = {series: index.points(series, runs) for series in chosen}
    changes = [c for series in chosen for c in _changes_of(series, courses[series])]
    changes.sort(key=lambda change: change.first.recorded_at, reverse=True)
    short = [
        series
        for series in chosen
        if metric_named(series.metric).kind is not MetricKind.EXACT
        and len(courses[series]) < 2 * LEAST_SEARCHED_RUNS
    ]
    return changes, len(short)


def _changes_of(series: Series, points: Sequence[Point]) -> Iterator[LevelChange]:
    values = [point.value for point in points]
    for shift in level_changes(metric_named(series.metric), values):
        yield LevelChange(
            series=series,
            shift=shift,
            last=points[shift.at - 1],
            first=points[shift.at],
        )


def _searched(text: str) -> int:
    if count(text) > MOST_RUNS_SEARCHED:
        msg = f"expected a whole number from 1 to {MOST_RUNS_SEARCHED}, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)
