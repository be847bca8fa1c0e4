"""``gpuperf bisect``: the commit that made a test worse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from ..compare_commits.commits import Mark
from ..compare_commits.commits import compare_versions
from ..compare_commits.commits import first_bad
from ..compare_commits.side_server import Selection
from ..compare_commits.sides import committed
from ..errors import ErrorId
from ..errors import UsageError
from ..model.ab import AbRun
from ..report.screen.commits import comparison_lines
from ..report.wrapping import wrapped
from ..runner.git import Repository
from ..sharing.processes import EXIT_INTERRUPTED
from ..visible import printed
from .compare_options import add_device_argument
from .compare_options import announce
from .compare_options import pytest_arguments


REST: Final = "GOOD BAD TEST [-- pytest arguments...]"

SEVERAL: Final = 1
"""Exit code where commits that cannot be judged leave more than one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two commits, the test and the device."""
    parser.add_argument("good", metavar="GOOD", help="commit before it became worse")
    parser.add_argument("bad", metavar="BAD", help="commit after it")
    parser.add_argument("test", metavar="TEST", help="node id of the test, or its file")
    add_device_argument(parser)


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Name the first bad commit with its table, or those among which it is."""
    given = [*pytest_arguments(arguments, rest), arguments.test]
    try:
        search = Search(Repository.containing(Path.cwd()), arguments.good, given)
        return search.through(arguments.bad)
    except KeyboardInterrupt:
        announce("interrupted: nothing was found, nothing is left behind")
        return EXIT_INTERRUPTED


class Search:
    """Compares commits with the good one and keeps the tables."""

    def __init__(
        self, repository: Repository, good: str, arguments: Sequence[str]
    ) -> None:
        self._repository = repository
        self._good = committed(repository, good)
        self._compare = partial(
            compare_versions,
            selection=Selection(arguments=tuple(arguments)),
            announce=announce,
        )
        self._found: dict[str, AbRun] = {}

    def through(self, bad: str) -> int:
        """Search up to *bad*; raises ``UsageError`` if that is not worse."""
        good_commit = str(self._good.commit)
        worst = self._repository.commit(bad)
        if not self._repository.is_ancestor(good_commit, worst):
            msg = (
                f"{self._good.label} is not an ancestor of {bad}: expected GOOD BAD, where "
                "BAD is a later commit on top of GOOD"
            )
            raise UsageError(msg, ErrorId.GP711)
        # First of all: if the last commit is not worse, hours of comparing would find
        # nothing.
        if self._mark(worst, self._compared(worst)) is not Mark.BAD:
            _print(comparison_lines(self._found[worst]))
            msg = (
                f"{bad} is not worse than {self._good.label}: there is nothing to find"
            )
            raise UsageError(msg, ErrorId.GP712)
        return self._tell(first_bad(self._repository, good_commit, worst, self._judge))

    def _judge(self, commit: str) -> Mark:
        try:
            mark = self._mark(commit, self._compared(commit))
        except UsageError as error:
            announce(f"skip {self._named(commit)}: {error}")
            return Mark.SKIP
        announce(f"{mark.value} {self._named(commit)}")
        return mark

    def _compared(self, commit: str) -> AbRun:
        version = committed(self._repository, commit)
        announce(f"comparing {self._named(commit)}")
        return self._compare((self._good, version))

    def _mark(self, commit: str, found: AbRun) -> Mark:
        """Mark a commit; a broken or undecided comparison is no evidence."""
        self._found[commit] = found
        if any(call.is_worse for call in found.calls):
            return Mark.BAD
        undecided = any(call.is_undecided for call in found.calls)
        return Mark.SKIP if undecided or not found.calls else Mark.GOOD

    def _named(self, commit: str) -> str:
        return self._repository.described(commit)

    def _tell(self, commits: Sequence[str]) -> int:
        if len(commits) == 1:
            _print(comparison_lines(self._found[commits[0]]))
            _print(
                wrapped(f"gpuperf: the first bad commit is {self._named(commits[0])}")
            )
            return 0
        _print(f"    {self._named(commit)}" for commit in commits)
        _print(
            wrapped(
                f"gpuperf: the first bad commit is one of these {len(commits)}; those "
                "between could not be judged"
            )
        )
        return SEVERAL


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write(printed(lines))
