"""``gpuperf bisect``: the commit, or the release of a package, that made a test worse,
or made it train otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import closing
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from ..compare_commits.candidates import Candidates
from ..compare_commits.candidates import Commits
from ..compare_commits.candidates import Releases
from ..compare_commits.commits import compare_versions
from ..compare_commits.search import BROKEN
from ..compare_commits.search import TRAINING
from ..compare_commits.search import Mark
from ..compare_commits.search import Sought
from ..compare_commits.search import first_bad
from ..compare_commits.search import marked
from ..compare_commits.search import worse_of
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
from ..model.metrics import STEP_MS
from ..report.json.bisect import FirstBad
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
from .json_option import add_json_argument
from .json_option import print_json
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
    add_json_argument(parser)


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Name the first bad one with its table, or those among which it is."""
    program = program_named(passed_on(arguments, rest))
    _refuse_other_names(arguments, 2 * (not arguments.package) + (not program))
    try:
        with _candidates(arguments) as candidates:
            compare = _comparing(arguments, rest, program)
            return tell(candidates, compare, as_json=arguments.json)
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
    selection = Selection(arguments=given, asks_training=True)
    return partial(compare_versions, selection=selection, announce=announce)


class Search:
    """Compares candidates with the good one, each once."""

    def __init__(self, candidates: Candidates, compare: Compare) -> None:
        self._candidates = candidates
        self._compare = compare
        self._found: dict[str, AbRun] = {}
        self._failed: dict[str, UsageError] = {}

    def last(self) -> AbRun:
        """Compare the last one: if it is not worse, hours would find nothing."""
        return self._compared(list(self._candidates.parents)[-1])

    def first(self, sought: Collection[Sought]) -> FirstBad | None:
        """Return the first one with some of what is *sought*, which the last one has."""
        if not sought:
            return None
        skipped: dict[str, str] = {}

        def judge(version: str) -> Mark:
            try:
                mark, why = marked(self._compared(version), sought)
            except UsageError as error:
                mark, why = Mark.SKIP, error.text
            if mark is Mark.SKIP:
                skipped[version] = why
            said = f"{mark.value} {self._candidates.named(version)}"
            announce(f"{said}: {why}" if why else said)
            return mark

        versions = first_bad(self._candidates.parents, judge)
        one = self._found[versions[0]] if len(versions) == 1 else None
        return FirstBad(versions, skipped, one)

    def _compared(self, version: str) -> AbRun:
        """Compare *version*, once; raises ``UsageError`` if that cannot be done."""
        if version in self._failed:
            raise self._failed[version]
        if version not in self._found:
            announce(f"comparing {self._candidates.named(version)}")
            try:
                side = self._candidates.side(version)
                self._found[version] = self._compare((self._candidates.good, side))
            except UsageError as error:
                self._failed[version] = error
                raise
        return self._found[version]


def tell(candidates: Candidates, compare: Compare, *, as_json: bool) -> int:
    """Search, and print what is found; raises ``UsageError`` if that is nothing."""
    search, what = Search(candidates, compare), candidates.what
    last = search.last()
    known = worse_of(last)
    worse = search.first([k for k in known if k[1] not in {BROKEN, TRAINING}])
    training = search.first([k for k in known if k[1] == TRAINING])
    kinds = {f"bad {what}": worse, f"{what} that trains otherwise": training}
    found = {kind: each for kind, each in kinds.items() if each}
    if not found:
        _print(() if as_json else comparison_lines(last))
        raise UsageError(_nothing(last, candidates.ends), ErrorId.GP712)
    if as_json:
        print_json(bisect_document(what, candidates.ends, worse, training))
    else:
        _print(_lines(found, candidates.named))
    return SEVERAL if any(each.comparison is None for each in found.values()) else 0


def _nothing(last: AbRun, ends: tuple[str, str]) -> str:
    good, bad = ends
    sought = [(call.test, STEP_MS.name) for call in (*last.calls, *last.uncompared)]
    sought += [(call.test, TRAINING) for call in last.calls if call.training]
    _, why = marked(last, sought)
    if why:
        return f"{bad} is not known to be worse than {good}: {why}"
    return f"{bad} is not worse than {good}: there is nothing to find"


def _lines(found: Mapping[str, FirstBad], named: Callable[[str], str]) -> Iterator[str]:
    """Show the first one of each kind with its table, or those among which it is."""
    tables = {each.versions: each.comparison for each in found.values()}
    for table in filter(None, tables.values()):
        yield from comparison_lines(table)
    several = [each.versions for each in found.values() if not each.comparison]
    why = {v: text for each in found.values() for v, text in each.skipped.items()}
    for version in (v for v in why if v not in chain.from_iterable(several)):
        skipped = f"skipped {_with_reason(named(version), why[version])}"
        yield from wrapped(skipped, first="note: ")
    for kind, (versions, reasons, comparison) in found.items():
        said = named(versions[0])
        if not comparison:
            for version in versions:
                yield f"    {_with_reason(named(version), reasons.get(version))}"
            between = "those between could not be judged"
            said = f"one of these {len(versions)}; {between}"
        yield from wrapped(f"gpuperf: the first {kind} is {said}")


def _with_reason(version: str, why: str | None) -> str:
    """Say why *version* was skipped, in one line, if it was."""
    return f"{version}: {why.splitlines()[0]}" if why else version


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write(printed(lines))
