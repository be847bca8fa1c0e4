"""``git bisect`` in a working tree of its own, apart from the user's bisect state."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from enum import Enum
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from ..runner.git import Repository
from ..runner.git import run_git
from .versions import Checkout
from .versions import Tree


class Mark(Enum):
    """The answer for git about a commit; one that cannot be judged is skipped."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


PLACE: Final = "bisect"
FOUND: Final = "is the first bad commit"
CANDIDATES: Final = "The first bad commit could be any of:"
LISTED_COMMIT: Final = re.compile(r"^[0-9a-f]{40,64}$", re.MULTILINE)

JudgeCommit = Callable[[str], Mark]


def first_bad(
    repository: Repository, good: str, bad: str, judge: JudgeCommit
) -> tuple[str, ...]:
    """Return the first bad commit, or all candidates if some commits were skipped.

    *judge* marks a commit between *good* and *bad*. Raises ``UsageError`` if git
    cannot go on.
    """
    tree = Tree(repository=repository.top, commit=bad, path=PLACE)
    with closing(Checkout([tree])) as checkout:
        place = Path(checkout.folder, PLACE)
        # Nothing is checked out here: each commit is measured in a checkout of its own.
        said = _bisect(place, "start", "--no-checkout", bad, good)
        while True:
            if FOUND in said.stdout:
                return (_commit(place, "refs/bisect/bad"),)
            if CANDIDATES in said.stdout:
                return tuple(LISTED_COMMIT.findall(said.stdout))
            if said.returncode:
                msg = f"git bisect cannot go on: {said.stderr.strip() or said.stdout}"
                raise UsageError(msg, ErrorId.GP710)
            mark = judge(_commit(place, "BISECT_HEAD"))
            said = _bisect(place, mark.value)


def _bisect(place: Path, *arguments: str) -> CompletedProcess[str]:
    return run_git(place, "bisect", *arguments)


def _commit(place: Path, ref: str) -> str:
    return run_git(place, "rev-parse", "--verify", ref).stdout.strip()
