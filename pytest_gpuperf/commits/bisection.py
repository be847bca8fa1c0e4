"""``git bisect`` in a working tree of its own, where its state is nobody else's."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from enum import Enum
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

from ..errors import UsageError
from .checkout import Checkout
from .checkout import Tree
from .repository import Repository
from .repository import run_git


class Mark(Enum):
    """What git is told of a commit; one that cannot be judged is left out."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


PLACE: Final = "bisect"
FOUND: Final = "is the first bad commit"
CANDIDATES: Final = "The first bad commit could be any of:"
COMMIT: Final = re.compile(r"^[0-9a-f]{40,64}$", re.MULTILINE)

Judge = Callable[[str], Mark]


def first_bad(
    repository: Repository, good: str, bad: str, judge: Judge
) -> tuple[str, ...]:
    """Return the first bad commit, or those among which it is where some were skipped.

    *judge* marks a commit between *good* and *bad*. Raises ``UsageError`` where git
    cannot go on.
    """
    tree = Tree(repository=repository.top, commit=bad, path=PLACE)
    with closing(Checkout([tree])) as checkout:
        place = Path(checkout.folder, PLACE)
        said = _bisect(place, "start", "--no-checkout", bad, good)
        while True:
            if FOUND in said.stdout:
                return (_commit(place, "refs/bisect/bad"),)
            if CANDIDATES in said.stdout:
                return tuple(COMMIT.findall(said.stdout))
            if said.returncode:
                msg = f"git bisect cannot go on: {said.stderr.strip() or said.stdout}"
                raise UsageError(msg)
            mark = judge(_commit(place, "BISECT_HEAD"))
            said = _bisect(place, mark.value)


def _bisect(place: Path, *arguments: str) -> CompletedProcess[str]:
    return run_git(place, "bisect", *arguments)


def _commit(place: Path, ref: str) -> str:
    return run_git(place, "rev-parse", "--verify", ref).stdout.strip()
