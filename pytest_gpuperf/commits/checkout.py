"""Commits in a temporary folder that is gone when we are, however we end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import UsageError
from . import guardian
from .repository import Repository
from .repository import git_environment
from .repository import short


GUARDIAN: Final = str(Path(guardian.__file__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A commit of a repository, to be checked out at ``path`` in the folder."""

    repository: str
    commit: str
    path: str


def trees_of(repository: Repository, commit: str, path: str) -> Iterator[Tree]:
    """Name *commit* and those of its submodules that are initialised here.

    Raises ``UsageError`` where the commit of such a submodule is not here.
    """
    yield Tree(repository=repository.top, commit=commit, path=path)
    for submodule in repository.submodules(commit):
        inner = repository.inside(submodule.path)
        if inner is None:
            continue
        if not inner.has(submodule.commit):
            msg = (
                f"submodule {submodule.path}: its commit {short(submodule.commit)}, which "
                f"{short(commit)} asks for, is not here; fetch it with `git -C "
                f"{submodule.path} fetch`"
            )
            raise UsageError(msg)
        yield from trees_of(inner, submodule.commit, f"{path}/{submodule.path}")


def uninitialised(repository: Repository, commit: str) -> list[str]:
    """Return the paths of the submodules of *commit* that nobody has fetched."""
    return [
        submodule.path
        for submodule in repository.submodules(commit)
        if repository.inside(submodule.path) is None
    ]


class Checkout:
    """The trees in a folder, while it is open; a guardian process removes them."""

    def __init__(self, trees: Sequence[Tree]) -> None:
        """Check *trees* out; raises ``UsageError`` where git cannot."""
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", GUARDIAN, json.dumps([asdict(t) for t in trees])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=git_environment(),
            start_new_session=True,  # Ctrl-C is for us
        )
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
            raise UsageError(msg)
        return str(answer["folder"])

    def close(self) -> None:
        """Wait until nothing is left."""
        self._process.communicate()
