"""``gpuperf bisect``: the commit, or the release of a package, that made a test worse."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import closing
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from ..compare_commits.candidates import Candidates
from ..compare_commits.candidates import Commits
from ..compare_commits.candidates import Releases
from ..compare_commits.commits import compare_versions
from ..compare_commits.search import Mark
from ..compare_commits.search import first_bad
from ..compare_commits.side_server import Selection
from ..compare_commits.sides import Side
from ..compare_commits.sides import present
from ..environments.cache import PackageCache
from ..environments.cache import default_place
from ..environments.installers import releases
from ..environments.releases import range_of
from ..environments.releases import within
from ..errors import ErrorId
from ..errors import UsageError
from ..model.ab import AbRun
from ..report.json.bisect import bisect_document
from ..report.screen.commits import comparison_lines
from ..report.wrapping import wrapped
from ..runner.git import Repository
from ..sharing.processes import EXIT_INTERRUPTED
from ..visible import printed
from .ab_script import compare_program
from .ab_script import program_named
from .compare_options import add_device_argument
from .compare_options import announce
from .compare_options import passed_on
from .compare_options import pytest_arguments
from .script import Program


REST: Final = "[GOOD BAD] TEST [-- pytest arguments...]"

SEVERAL: Final = 1
"""Exit code where those that cannot be judged leave more than one."""

Compare = Callable[[tuple[Side, Side]], AbRun]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is searched, the test and the device."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="GOOD BAD TEST",
        help="commit before it became worse, commit after it, and node id of the test or "
        "its file; with --package the test alone, or a script after `--`",
    )
    parser.add_argument(
        "--package",
        metavar="PACKAGE==GOOD..BAD",
        help="search the releases of this package in place of commits",
    )
    add_device_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON and no table")


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Name the first bad one with its table, or those among which it is."""
    program = program_named(passed_on(arguments, rest))
    _refuse_other_names(arguments, 2 * (not arguments.package) + (not program))
    try:
        with _candidates(arguments) as candidates:
            compare = _comparing(arguments, rest, program)
            return Search(candidates, compare, as_json=arguments.json).tell()
    except KeyboardInterrupt:
        announce("interrupted: nothing was found, nothing is left behind")
        return EXIT_INTERRUPTED


def _refuse_other_names(arguments: argparse.Namespace, expected: int) -> None:
    """Raise ``UsageError`` unless as many names were typed as *expected*."""
    if len(arguments.names) != expected:
        arguments.parser.error(
            f"found {' '.join(arguments.names) or 'no name'}: expected GOOD BAD unless there "
            "is a --package, and TEST unless a script follows `--`"
        )


@contextmanager
def _candidates(arguments: argparse.Namespace) -> Iterator[Candidates]:
    """Yield what is searched; raise ``UsageError`` if that cannot be listed."""
    if not arguments.package:
        repository = Repository.containing(Path.cwd())
        yield Commits(repository, *arguments.names[:2])
        return
    package, *_ = range_of(arguments.package)
    versions = within(arguments.package, releases(package))
    announce(f"{len(versions)} releases, {versions[0]} to {versions[-1]}")
    with closing(PackageCache(default_place())) as cache:
        yield Releases(present(), package, versions, cache, announce)


def _comparing(
    arguments: argparse.Namespace, rest: Sequence[str], program: Program | None
) -> Compare:
    """Return what compares two sides, by a test or by *program*."""
    if program:
        return partial(compare_program, program=program, announce=announce)
    given = (*pytest_arguments(arguments, rest), arguments.names[-1])
    selection = Selection(arguments=given)
    return partial(compare_versions, selection=selection, announce=announce)


class Search:
    """Compares candidates with the good one and keeps the tables."""

    def __init__(
        self, candidates: Candidates, compare: Compare, *, as_json: bool = False
    ) -> None:
        self._candidates = candidates
        self._as_json = as_json
        self._compare = compare
        self._found: dict[str, AbRun] = {}
        self._skipped: dict[str, str] = {}

    def tell(self) -> int:
        """Search, and print what is found; raises ``UsageError`` if the last is not worse."""
        parents = self._candidates.parents
        worst = list(parents)[-1]
        # First of all: if the last one is not worse, hours of comparing would find
        # nothing.
        if self._mark(worst, self._compared(worst)) is not Mark.BAD:
            _print(() if self._as_json else comparison_lines(self._found[worst]))
            good, bad = self._candidates.ends
            msg = f"{bad} is not worse than {good}: there is nothing to find"
            raise UsageError(msg, ErrorId.GP712)
        return self._tell(first_bad(parents, self._judge))

    def _judge(self, version: str) -> Mark:
        try:
            mark = self._mark(version, self._compared(version))
        except UsageError as error:
            self._skipped[version] = error.text
            mark = Mark.SKIP
        why = f": {self._skipped[version]}" if mark is Mark.SKIP else ""
        announce(f"{mark.value} {self._named(version)}{why}")
        return mark

    def _compared(self, version: str) -> AbRun:
        announce(f"comparing {self._named(version)}")
        return self._compare((self._candidates.good, self._candidates.side(version)))

    def _mark(self, version: str, found: AbRun) -> Mark:
        """Mark one; a broken or undecided comparison is no evidence."""
        self._found[version] = found
        if any(call.is_worse for call in found.calls):
            return Mark.BAD
        undecided = any(call.is_undecided for call in found.calls)
        if found.calls and not undecided:
            return Mark.GOOD
        reasons = [call.uncompared for call in found.uncompared]
        self._skipped[version] = reasons[0] if reasons else "undecided"
        return Mark.SKIP

    def _named(self, version: str) -> str:
        return self._candidates.named(version)

    def _tell(self, found: Sequence[str]) -> int:
        what, ends = self._candidates.what, self._candidates.ends
        if self._as_json:
            one = self._found[found[0]] if len(found) == 1 else None
            said = bisect_document(what, ends, found, self._skipped, one)
            sys.stdout.write(f"{json.dumps(said, indent=2)}\n")
            return 0 if one else SEVERAL
        if len(found) == 1:
            _print(comparison_lines(self._found[found[0]]))
            _print(self._notes(set(self._skipped)))
            _print(wrapped(f"gpuperf: the first bad {what} is {self._named(found[0])}"))
            return 0
        _print(self._notes(set(self._skipped) - set(found)))
        _print(f"    {self._named(v)}{self._why(v)}" for v in found)
        _print(
            wrapped(
                f"gpuperf: the first bad {what} is one of these {len(found)}; those "
                "between could not be judged"
            )
        )
        return SEVERAL

    def _notes(self, versions: set[str]) -> Iterator[str]:
        for version in self._skipped:
            if version in versions:
                skipped = f"skipped {self._named(version)}{self._why(version)}"
                yield from wrapped(skipped, first="note: ")

    def _why(self, version: str) -> str:
        """Say why *version* was skipped, in one line, if it was."""
        lines = self._skipped.get(version, "").splitlines()
        return f": {lines[0]}" if lines else ""


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write(printed(lines))
