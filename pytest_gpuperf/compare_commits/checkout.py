"""Commits in a folder that is gone when we are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ..errors import ErrorId, QuotedError, UsageError
from ..runner.git import Repository, git_environment, short
from . import checkout_process as guardian
from .checkout_process import Tree


GUARDIAN: Final = str(Path(guardian.__file__))


def trees_of(repository: Repository, commit: str, path: str) -> Iterator[Tree]:
    """Name *commit*, to be checked out at *path*, and its submodules that are here.

    Raises ``UsageError`` if the commit of such a submodule is not here.
    """
    yield {"repository": repository.top, "commit": commit, "path": path}
    for place, asked in repository.submodules(commit):
        inner = repository.inside(place)
        if inner is None:
            continue
        if not inner.has(asked):
            msg = (
                f"submodule {place}: its commit {short(asked)}, which {short(commit)} asks "
                f"for, is not here; fetch it with `git -C {place} fetch`"
            )
            raise UsageError(msg, ErrorId.GP706)
        yield from trees_of(inner, asked, f"{path}/{place}")


def uninitialised(repository: Repository, commit: str) -> list[str]:
    """Return the paths of the submodules of *commit* that nobody has fetched."""
    return [
        path
        for path, _ in repository.submodules(commit)
        if repository.inside(path) is None
    ]


class Checkout:
    """The trees in a folder, while it is open; a guardian process removes them."""

    def __init__(self, trees: Sequence[Tree]) -> None:
        """Check *trees* out; raises ``UsageError`` if git cannot."""
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", GUARDIAN, json.dumps(trees)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=git_environment(),
            # Ctrl-C ends this process only; the guardian then removes the trees.
            start_new_session=True,
        )
        # Everything, an interrupt as well: nobody else would ever close a checkout that
        # was not made.
        try:
            self.folder = self._answer()
        except BaseException:
            self.close()
            raise

    def _answer(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        answer = json.loads(self._process.stdout.readline() or "{}")
        error = answer.get("error", "the process that checks out died")
        if error is not None:
            msg = f"git could not check out {error}"
            raise QuotedError(msg, ErrorId.GP705)
        return str(answer["folder"])

    def close(self) -> None:
        """Wait until nothing is left."""
        self._process.communicate()
