"""``gpuperf diff``: what was measured last, against what is stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import geometric_mean
from typing import Any
from typing import Final

from ..baselines.acceptance import Choice
from ..baselines.refresh import changes
from ..judge.readings import stored_values
from ..model.baseline import BaselineChange
from ..model.baseline import Baselines
from ..model.metric import MetricKind
from ..report.json.acceptance import acceptance_document
from ..report.json.acceptance import accepted_file
from ..report.numbers import format_value
from ..report.numbers import join_fitting
from ..report.numbers import metric_named
from ..report.screen.acceptance import outlook_lines
from ..report.screen.summary import refresh_lines
from ..report.wrapping import wrapped
from ..visible import printed
from .files import add_baselines_argument
from .files import elsewhere
from .json_option import add_json_argument
from .json_option import print_json
from .pending import Pending
from .pending import add_choice_arguments
from .pending import choice_of
from .pending import files_in
from .pending import nothing_chosen
from .pending import plans


REST: Final = None

MOST_DIFFERENT: Final = 20
"""Rows that are shown, the largest changes, but with ``-v``."""

DISTURBED_WIDTH: Final = 100
"""Characters of the tests that were disturbed."""

TIMES_NOTE: Final = (
    "times: what the baseline file has or would have, typical of all runs; the table of "
    "a run shows the mean of those that were judged"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, what to take of them, and the two folders."""
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="PENDING",
        help="file that a run left, or its folder (default: that of --pending)",
    )
    add_choice_arguments(parser)
    add_baselines_argument(parser)
    parser.add_argument(
        "--pending",
        type=Path,
        default=Path(".gpuperf"),
        metavar="DIR",
        help="folder that runs leave their numbers in (default: %(default)s)",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help=f"show every row, and not only the {MOST_DIFFERENT} largest changes",
    )
    add_json_argument(parser)


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print old and new values, hardware by hardware; differences are no failure."""
    named = [file for path in arguments.files for file in files_in(path)]
    paths = named or sorted(arguments.pending.glob("pending-*.json"))
    found = plans(arguments, arguments.pending, paths)
    if arguments.json:
        print_json(acceptance_document(0, map(_file, found)))
        return 0
    choice, verbose = choice_of(arguments), arguments.verbose
    lines = [x for each in found for x in _compared(each, choice, verbose=verbose)]
    if not paths:
        hint = elsewhere(arguments.pending)
        lines = [
            f"nothing pending in {arguments.pending}: run `pytest --gpuperf` first{hint}"
        ]
    sys.stdout.write(printed(lines))
    return 0


def _file(found: Pending) -> dict[str, Any]:
    return accepted_file(
        found.path, found.stored, found.new.hardware, _changes(found), found.plan
    )


def _changes(found: Pending) -> list[BaselineChange]:
    """Compare the tests that the last run measured; the others are not gone."""
    moved = changes(found.old, found.new)
    return [change for change in moved if change.test in found.chosen]


def _compared(found: Pending, choice: Choice, *, verbose: bool) -> tuple[str, ...]:
    path, new, stored = found.path, found.new, found.stored
    if not found.chosen:
        return nothing_chosen(new, choice)
    rows = _changes(found)
    if not rows:
        return (f"nothing pending in {path}: it says the same as {stored}",)
    shown = rows if verbose else _largest(rows)
    more = len(rows) - len(shown)
    is_other_mean = any(_is_another_mean(row, new) for row in shown)
    return (
        f"{stored} -> {path}",
        *(line.text for line in refresh_lines(shown, _disturbed(shown, new))),
        *((f"and {more} more, with -v",) if more else ()),
        *_disturbed_lines(shown, new),
        *(wrapped(TIMES_NOTE) if is_other_mean else ()),
        *outlook_lines(found.plan),
    )


def _disturbed(shown: Sequence[BaselineChange], new: Baselines) -> list[BaselineChange]:
    """Return the rows with times that something disturbed."""
    return [
        row
        for row in shown
        if metric_named(row.metric).kind is MetricKind.NOISY
        and row.new is not None
        and (judged := new.entries[row.test].judged) is not None
        and judged.disturbed
    ]


def _disturbed_lines(shown: Sequence[BaselineChange], new: Baselines) -> Iterator[str]:
    """Name the tests with times in the table that something disturbed."""
    tests = [row.test for row in _disturbed(shown, new)]
    if tests:
        named = join_fitting(list(dict.fromkeys(tests)), DISTURBED_WIDTH)
        yield from wrapped(
            f"* disturbed, times may be too long: {named}; measure again"
        )


def _largest(rows: Sequence[BaselineChange]) -> Sequence[BaselineChange]:
    """Return the rows with the largest changes, in their order."""
    ranked = sorted(rows, key=_size, reverse=True)[:MOST_DIFFERENT]
    return [row for row in rows if row in ranked]


def _size(row: BaselineChange) -> float:
    """Return the change as a ratio; what is new or gone comes last."""
    if row.old is None or row.new is None:
        return -1.0
    return abs(row.new - row.old) / row.old if row.old else inf


def _is_another_mean(row: BaselineChange, new: Baselines) -> bool:
    """Whether the table of the run has shown another time than the typical one."""
    metric, entry = metric_named(row.metric), new.entries.get(row.test)
    if metric.kind is not MetricKind.NOISY or entry is None or row.new is None:
        return False
    times = stored_values(metric, entry.runs, new.hardware.kind)
    mean = format_value(metric, geometric_mean(times)) if times else ""
    return mean != format_value(metric, row.new)
