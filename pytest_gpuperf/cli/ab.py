"""``gpuperf ab``: one version of the project against another, on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ..baselines.store import write
from ..compare_commits.commits import compare_versions
from ..compare_commits.culprits import Culprits
from ..compare_commits.search import TRAINING, worse_of
from ..compare_commits.side_server import Selection
from ..compare_commits.sides import Side, other_folder, patched, present, versions
from ..environments.lock_files import changed, installed, pins_of
from ..environments.overlay import PackageChange, Packages
from ..errors import ErrorId, UsageError
from ..files import scratch_folder
from ..model.ab import AbRun
from ..model.metrics import STEP_MS
from ..report.json.ab import ab_document
from ..report.screen.commits import comparison_lines, markdown_lines
from ..runner.git import Repository
from ..sharing.processes import EXIT_INTERRUPTED
from ..visible import printed
from .ab_script import compare_program, program_named
from .shared_options import (
    add_device_argument,
    add_json_argument,
    announce,
    passed_on,
    print_json,
    pytest_arguments,
)


REST: Final = "[REF [REF2]] [-- pytest arguments... | -- train.py arguments...]"

STDIN: Final = "-"

CHANGE_OPTIONS: Final = "--with, --without, --lock and --patch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two versions, the device and the form of the table."""
    parser.add_argument(
        "before",
        nargs="?",
        metavar="REF",
        help="commit or folder to compare with (default: the commit at which HEAD left main)",
    )
    parser.add_argument(
        "after",
        nargs="?",
        metavar="REF2",
        help="commit to judge (default: the working tree, uncommitted changes included)",
    )
    _add_changes(parser)
    add_device_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--markdown",
        action="store_true",
        help="print the table for a pull request",
    )
    add_json_argument(form)
    parser.add_argument(
        "--markdown-file",
        type=Path,
        metavar="FILE",
        help="also write the table for a pull request to FILE",
    )


def _add_changes(parser: argparse.ArgumentParser) -> None:
    """Declare what, in place of two commits, differs from what is here now."""
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="requirements",
        metavar="PACKAGE==VERSION",
        help="judge the project with this package, a wheel or a folder (repeatable)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="judge the project without this package (repeatable)",
    )
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="compare with the packages that this requirements file or uv.lock pins",
    )
    parser.add_argument(
        "--which",
        action="store_true",
        help="with --lock: name the package, or the few together, that made it worse "
        "or train otherwise",
    )
    parser.add_argument(
        "--patch",
        metavar="FILE",
        help="judge the project with this patch, - for standard input",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Compare, print the table, and return its status."""
    program = program_named(passed_on(arguments, rest))
    given = () if program else pytest_arguments(arguments, rest)
    selection = Selection(arguments=tuple(given), asks_training=True)

    def compare(both: tuple[Side, Side], some: Selection = selection) -> AbRun:
        if program:
            return compare_program(both, program, announce)
        return compare_versions(both, some, announce)

    try:
        with _sides(arguments) as both:
            found, code = compare(both), 0
            if arguments.which and worse_of(found):
                again = partial(compare, some=_only_worse(found, selection))
                found, code = _with_culprits(found, both, arguments.lock, again)
            elif _is_lock_alone(arguments) and worse_of(found):
                found = _with_hint(found, arguments.lock)
    except KeyboardInterrupt:
        announce("interrupted: nothing was judged, no file is left")
        return EXIT_INTERRUPTED
    if arguments.json:
        print_json(ab_document(found))
    else:
        lines = markdown_lines if arguments.markdown else comparison_lines
        sys.stdout.write(printed(lines(found)))
    if arguments.markdown_file:
        write(arguments.markdown_file, printed(markdown_lines(found)))
    return code or found.status


def _is_lock_alone(arguments: argparse.Namespace) -> bool:
    changes = (arguments.requirements, arguments.without, arguments.patch)
    return arguments.lock is not None and not any(changes)


@contextmanager
def _sides(arguments: argparse.Namespace) -> Iterator[tuple[Side, Side]]:
    """Yield the side that is compared with, and the one that is judged."""
    change = PackageChange(
        requirements=tuple(arguments.requirements), without=tuple(arguments.without)
    )
    if arguments.which and not _is_lock_alone(arguments):
        msg = "--which: expected --lock=FILE and no other change"
        raise UsageError(msg, ErrorId.GP102)
    if change == PackageChange() and not (arguments.lock or arguments.patch):
        yield _named(arguments.before, arguments.after)
        return
    if arguments.before:
        msg = f"{arguments.before}: {CHANGE_OPTIONS} change what is here now: expected no REF"
        raise UsageError(msg, ErrorId.GP102)
    before, after = _of_files(arguments.patch)
    with scratch_folder() as place:
        packages = Packages(place, announce)
        after = after.with_packages(packages.overlay(change))
        if arguments.lock:
            old = PackageChange.to_lock(arguments.lock)
            before = before.with_packages(packages.overlay(old))
        if before == after:
            msg = "what is named is what is installed: there is nothing to compare"
            raise UsageError(msg, ErrorId.GP703)
        yield before, after


def _named(before: str | None, after: str | None) -> tuple[Side, Side]:
    """Return the commits that are meant, or a folder and what is here."""
    if before and not after and Path(before).is_dir():
        here = present()
        return other_folder(Path(before), here.relocation.origin), here
    return versions(Repository.containing(Path.cwd()), before, after)


def _of_files(patch: str | None) -> tuple[Side, Side]:
    """Return the project as it is now, and with a *patch* if there is one."""
    if patch is None:
        here = present()
        return here, here
    if patch != STDIN and not Path(patch).is_file():
        msg = (
            f"--patch={patch}: there is no such file; expected a patch, or - for stdin"
        )
        raise UsageError(msg, ErrorId.GP720)
    repository = Repository.containing(Path.cwd())
    if patch != STDIN:
        return patched(repository, Path(patch), patch)
    with scratch_folder() as scratch:
        file = Path(scratch, "patch")
        file.write_bytes(sys.stdin.buffer.read())
        return patched(repository, file, "the patch")


def _with_hint(found: AbRun, lock: Path) -> AbRun:
    """Return *found*, and how to learn more if several packages may have done it."""
    before, _ = changed(pins_of(lock), installed())
    if len(before) == 1:
        return found
    hint = f"{len(before)} packages differ: --which names the one that did it"
    return replace(found, notes=(*found.notes, hint))


def _with_culprits(
    found: AbRun,
    both: tuple[Side, Side],
    lock: Path,
    compare: Callable[[tuple[Side, Side]], AbRun],
) -> tuple[AbRun, int]:
    """Return *found* with a note on each culprit; and 130 after Ctrl-C, else 0."""
    old, new = both
    pins = changed(pins_of(lock), installed())
    with scratch_folder() as place:
        packages = Packages(place, announce)

        def compare_part(requirements: tuple[str, ...]) -> AbRun:
            change = PackageChange(requirements=requirements)
            return compare((old, new.with_packages(packages.overlay(change))))

        culprits = Culprits(found, pins, compare_part, announce)
        code, more = 0, list[str]()
        try:
            culprits.search()
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            more = [culprits.left()]
    return replace(found, notes=(*found.notes, *culprits.lines(), *more)), code


def _only_worse(found: AbRun, selection: Selection) -> Selection:
    """Return what is compared again: of *selection* the tests that got worse or differ.

    What is exact alone, if no time got worse: it takes few pairs.
    """
    worse = worse_of(found)
    metrics = {metric for _, metric in worse}
    return replace(
        selection,
        calls=tuple(dict.fromkeys(call for call, _ in worse)),
        exact_alone=STEP_MS.name not in metrics,
        asks_training=TRAINING in metrics,
    )
