"""``gpuperf accept``: what a run measured becomes the stored baselines."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ..baselines import store
from ..baselines.acceptance import (
    Choice,
    acceptance,
    changes_by,
    chosen,
    stored_changes,
)
from ..baselines.store import keep_operations, pending_path, read_operations
from ..errors import BaselineError, ErrorId, UsageError
from ..model.baseline import AcceptancePlan, BaselineChange, Baselines, Entry, Refresh
from ..model.run import RESULTS_NAME
from ..model.verdict import TestVerdict
from ..report.command import accept_command, measure_command
from ..report.document import wrapped
from ..report.json import verdict_of
from ..report.numbers import join_fitting
from ..report.screen.acceptance import (
    acceptance_lines,
    missed_lines,
    outlook_lines,
    refused_lines,
)
from ..report.screen.failure import only_line
from ..report.screen.findings import failing_findings, short
from ..report.screen.summary import refresh_lines
from ..settings import ARTEFACTS, refuse_in_ci
from ..visible import printed
from .shared_options import add_baselines_argument, read_document, read_results, typed


PENDING_KINDS: Final = ", ".join(kind.value for kind in Refresh)
PENDING_PREFIX: Final = "pending-"
MOST_PENDING_NAMED: Final = 100
"""Characters of the tests that an error names."""

MEASURE_AGAIN: Final = (
    "measure again with `pytest --gpuperf`, or download the file again"
)

REST: Final = None

EXIT_REFUSED: Final = 1
"""Exit code if something was to be accepted and is not; as pytest's for failures."""

LOCK_FOLDER: Final = Path(".gpuperf")
"""Folder in which runs take turns to write."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, what to take of it, and the committed folder."""
    parser.add_argument(
        "pending",
        type=Path,
        nargs="?",
        default=Path(ARTEFACTS),
        metavar="PENDING",
        help="file that a run left, .gpuperf/pending-<hardware>.json, or its folder "
        "(default: %(default)s)",
    )
    add_choice_arguments(parser)
    add_baselines_argument(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be accepted, and write nothing",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Store what is chosen and moved, print old and new values."""
    if not arguments.dry_run:
        # A gate that moves its own baseline passes whatever it measures.
        refuse_in_ci("gpuperf accept", "accept", os.environ)
    status = 0
    for found in plans(arguments, arguments.pending, files_in(arguments.pending)):
        carry_out = _planned if arguments.dry_run else _stored
        refuses, lines = _said(arguments, found, carry_out(arguments, found))
        status = EXIT_REFUSED if refuses and not arguments.dry_run else status
        sys.stdout.write(printed(lines))
    return status


def _planned(_: argparse.Namespace, found: Pending) -> Sequence[BaselineChange]:
    return changes_by(found.old, found.plan.entries)


def _stored(arguments: argparse.Namespace, found: Pending) -> Sequence[BaselineChange]:
    """Store what is planned, with its operations, and return what moved."""
    entries, hardware = found.plan.entries, found.new.hardware
    moved = stored_changes(
        arguments.baselines, found.old, entries, lock_folder=LOCK_FOLDER
    )
    digests = {
        test: read_operations(
            found.path.parent, hardware, test, found.new.entries[test]
        )
        for test in entries
    }
    keep_operations(arguments.baselines, hardware, entries, digests)
    return moved


def _said(
    arguments: argparse.Namespace, found: Pending, changes: Sequence[BaselineChange]
) -> tuple[bool, Iterable[str]]:
    """Return whether something is refused, and how all is said."""
    choice, plan = found.choice, found.plan
    if not found.chosen:
        refuses = any(map(choice.is_named, found.new.entries))
        return refuses, nothing_chosen(found.new, choice)
    lines = _lines(arguments, found, changes)
    return bool(plan.drifted or plan.missed), lines


def _lines(
    arguments: argparse.Namespace, found: Pending, changes: Sequence[BaselineChange]
) -> Iterator[str]:
    plan, kind = found.plan, found.new.hardware.kind
    if changes:
        would = "would be " if arguments.dry_run else ""
        yield f"{would}accepted into {found.stored}:"
        yield from (line.text for line in refresh_lines(changes))
    insist = accept_command(
        str(arguments.pending), str(arguments.baselines), plan.drifted
    )
    yield from refused_lines(plan.drifts, insist)
    for test in found.left:
        yield f"left as it was, as it became worse for more reasons: {test}"
    yield from missed_lines(plan, measure_command(plan.missed, kind))
    yield from (outlook_lines if arguments.dry_run else acceptance_lines)(plan)


def add_choice_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which of the entries are meant."""
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="accept a test, or all in a file, folder or class; * and ? stand for any "
        "characters; FILE:LINE: all tests that became worse by that line alone, also "
        "without --accept-drift (may be repeated; default: all)",
    )
    parser.add_argument(
        "--kind",
        type=typed(f"some of {PENDING_KINDS}", _kinds),
        default=(Refresh.ALL,),
        metavar="KIND[,KIND]",
        help=f"accept what a refresh of this kind would: {PENDING_KINDS} (default: all)",
    )
    parser.add_argument(
        "--evidence",
        dest="kind",
        action="store_const",
        const=(Refresh.EVIDENCE,),
        help="add the runs to those of the baselines, as another session of the same "
        "code: nothing is replaced",
    )
    parser.add_argument(
        "--accept-drift",
        action="store_true",
        help="accept numbers that got worse, too, as the new reference",
    )


def choice_of(arguments: argparse.Namespace) -> Choice:
    """Return what the arguments choose, but for lines of source."""
    return Choice(
        kinds=arguments.kind,
        only=tuple(arguments.only),
        accept_drift=arguments.accept_drift,
    )


# Tests by the line that made them worse.

SOURCE_LINE: Final = re.compile(r"(?P<file>.+\.py):(?P<line>\d+)")

NO_RESULTS: Final = (
    "--only FILE:LINE needs the results of that run: run `pytest --gpuperf` again"
)


class WorseByLine(NamedTuple):
    """The calls that one of some lines alone made worse, and those with more causes.

    Of the first it has the metrics that became worse.
    """

    hardware: str
    alone: Mapping[str, Collection[str]]
    others: tuple[str, ...]

    def strays(self, plan: AcceptancePlan) -> set[str]:
        """Return the calls that *plan* refuses for a drift that the lines do not explain."""
        return {d.test for d in plan.drifts if d.metric not in self.alone[d.test]}


def worse_by(lines: Sequence[str], pending: Path) -> WorseByLine:
    """Find the tests that *lines* made worse in the run that left *pending*.

    Raises ``UsageError`` if that is none, or one of *lines* is a test, or the results of
    the run are not there.
    """
    tests = [name for name in lines if not SOURCE_LINE.fullmatch(name)]
    if tests:
        msg = f"--only takes lines or tests: expected FILE:LINE only, found {tests[0]}"
        raise UsageError(msg, ErrorId.GP511)
    file = (pending if pending.is_dir() else pending.parent) / RESULTS_NAME
    results = read_results(file, NO_RESULTS)
    calls = [
        verdict_of(call, str(file))
        for record in results.tests.values()
        for call in record.verdicts
    ]
    alone = {
        v.test: {each.metric for each in v.verdicts if each.outcome.fails}
        for v in calls
        if _named(only_line(v)) in lines
    }
    touched = [v.test for v in calls if not lines_of(v).isdisjoint(lines)]
    if not alone:
        more = "; ".join(f"{test} became worse for more reasons" for test in touched)
        found = more or "no test became worse there"
        msg = f"--only {' '.join(lines)}: {found} in the run of {file}"
        raise UsageError(msg, ErrorId.GP511)
    hardware = results.head.hardware
    others = tuple(test for test in touched if test not in alone)
    return WorseByLine(hardware.key if hardware else "", alone, others)


def lines_of(verdict: TestVerdict) -> set[str]:
    """Return the lines that have a part in why *verdict* fails, as they are typed."""
    places = (short(finding.location) for finding in failing_findings(verdict))
    return {f"{at.file}:{at.line}" for at in places if at}


def _named(place: tuple[str, int] | None) -> str:
    return f"{place[0]}:{place[1]}" if place else ""


def files_in(path: Path) -> Sequence[Path]:
    """Return *path*, or the files of a folder; raise ``UsageError`` if it has none."""
    if not path.is_dir():
        return (path,)
    files = sorted(path.glob(f"{PENDING_PREFIX}*.json"))
    if not files:
        msg = f"{path}: has no {PENDING_PREFIX}<hardware>.json; name the folder that a run left"
        raise UsageError(msg, ErrorId.GP510)
    return files


def read_pending(path: Path) -> Baselines:
    """Read what a run measured; raises ``BaselineError`` if *path* is no such file."""
    pending = read_document(path, MEASURE_AGAIN)
    named, own = path.name, pending_path(path.parent, pending.hardware).name
    old = f"{PENDING_PREFIX}{pending.hardware.old_key}.json"
    if named.startswith(PENDING_PREFIX) and named not in {own, old}:
        msg = (
            f"{path}: measured on {pending.hardware.kind.value} {pending.hardware.name}, "
            f"but the name says {path.stem.removeprefix(PENDING_PREFIX)}; rename it to {own}"
        )
        raise BaselineError(msg, ErrorId.GP504)
    return pending


def refuse_unknown_names(
    where: Path, found: Sequence[Baselines], choice: Choice
) -> None:
    """Raise ``UsageError`` if *choice* names what was not *found* in *where*."""
    known = sorted({test for pending in found for test in pending.entries})
    for name in choice.only:
        alone = Choice(only=(name,))
        if not any(map(alone.names, known)):
            msg = (
                f"--only {name!r} names no test in {where}, which has "
                f"{join_fitting(known, MOST_PENDING_NAMED) or 'none'}"
            )
            raise UsageError(msg, ErrorId.GP511)


class Pending(NamedTuple):
    """A file that a run left next to the stored ones, and what accepting it would do."""

    choice: Choice
    path: Path
    new: Baselines
    old: Baselines
    stored: Path
    chosen: Mapping[str, Entry]
    plan: AcceptancePlan
    left: tuple[str, ...] = ()
    """Tests that became worse by a chosen line and for more reasons."""


def plans(
    arguments: argparse.Namespace, where: Path, paths: Sequence[Path]
) -> list[Pending]:
    """Return what accepting the choice of the *arguments* would do, for all of *paths*.

    All are read before any is stored: a broken file must not leave half of them accepted.
    Raises ``UsageError`` if a name is none *where* they lie.
    """
    found, choice = {path: read_pending(path) for path in paths}, choice_of(arguments)
    if any(map(SOURCE_LINE.fullmatch, choice.only)):
        worse = worse_by(choice.only, where)
        return [
            _plan_by_line(path, new, arguments.baselines, choice, worse)
            for path, new in found.items()
            # That of another device is of another run.
            if new.hardware.key == worse.hardware
        ]
    refuse_unknown_names(where, [*found.values()], choice)
    return [
        _plan_of(path, new, arguments.baselines, choice) for path, new in found.items()
    ]


def _plan_by_line(
    path: Path, new: Baselines, folder: Path, choice: Choice, worse: WorseByLine
) -> Pending:
    """Plan what the lines alone made worse; what drifted besides is left as it was."""
    meant = replace(choice, only=(), calls=frozenset(worse.alone))
    strays = worse.strays(_plan_of(path, new, folder, meant).plan)
    chosen_calls = replace(meant, calls=meant.calls - strays, accept_drift=True)
    if not chosen_calls.calls:
        msg = f"--only {' '.join(choice.only)}: its tests drifted for more reasons in {path}"
        raise UsageError(msg, ErrorId.GP511)
    planned = _plan_of(path, new, folder, chosen_calls)
    return planned._replace(left=(*worse.others, *sorted(strays)))


def _plan_of(path: Path, new: Baselines, folder: Path, choice: Choice) -> Pending:
    old = store.read(folder, new.hardware)
    stored = store.path_of(folder, new.hardware)
    meant, plan = chosen(new, old, choice), acceptance(new, old, choice)
    return Pending(choice, path, new, old, stored, meant, plan)


def nothing_chosen(pending: Baselines, choice: Choice) -> tuple[str, ...]:
    """Say that *choice* takes nothing of *pending*."""
    named = sum(map(choice.names, pending.entries))
    kinds = " or ".join(kind.value for kind in choice.kinds)
    tests = "its test is not" if named == 1 else f"none of its {named} tests is"
    text = f"gpuperf: nothing to accept for {pending.hardware.key}: {tests} {kinds}"
    return wrapped(text if named else text.partition(": none")[0])


def _kinds(text: str) -> tuple[Refresh, ...]:
    return tuple(Refresh(word.strip()) for word in text.split(","))
