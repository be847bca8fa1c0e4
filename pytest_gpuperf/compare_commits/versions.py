"""Commits in a temporary folder that is gone when we are, however we end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from dataclasses import dataclass
from enum import Enum
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from pathlib import PurePosixPath
from subprocess import CompletedProcess
from typing import Final

from ..errors import ErrorId
from ..errors import QuotedError
from ..errors import UsageError
from ..runner.git import Repository
from ..runner.git import git_environment
from ..runner.git import run_git
from ..runner.git import short
from . import cleanup_process as guardian


GUARDIAN: Final = str(Path(guardian.__file__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A commit of a repository, to be checked out at ``path`` in the folder."""

    repository: str
    commit: str
    path: str


def trees_of(repository: Repository, commit: str, path: str) -> Iterator[Tree]:
    """Name *commit* and those of its submodules that are initialised here.

    Raises ``UsageError`` if the commit of such a submodule is not here.
    """
    yield Tree(repository=repository.top, commit=commit, path=path)
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
            [sys.executable, "-I", GUARDIAN, json.dumps([asdict(t) for t in trees])],
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


# Two versions of a project: which commits they are, and what they are called.


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version and its name; without a ``commit`` it is the current working tree."""

    label: str
    commit: str | None
    notes: tuple[str, ...] = ()

    def trees(self, repository: Repository, path: str) -> list[Tree]:
        """Return what must be checked out at *path* for it."""
        if self.commit is None:
            return []
        return list(trees_of(repository, self.commit, path))


def versions(
    repository: Repository, before: str | None, after: str | None
) -> tuple[Version, Version]:
    """Return the two versions that are meant, the earlier first.

    Without *after* it is the working tree, without *before* the commit at which HEAD
    left the main branch. Raises ``UsageError`` if a name is none.
    """
    if before is None:
        base, branch = repository.merge_base()
        earlier = _committed(repository, base, f"merge base with {branch}")
    else:
        earlier = committed(repository, before)
    if after is None:
        return earlier, _working_tree(repository)
    return earlier, committed(repository, after)


def committed(repository: Repository, ref: str) -> Version:
    """Return the version that *ref* names; raise ``UsageError`` if it names none."""
    return _committed(repository, repository.commit(ref), ref)


def _committed(repository: Repository, commit: str, name: str) -> Version:
    named = "" if commit.startswith(name) else f" ({short(commit)})"
    label = f"{short(commit) if not named else name}{named}"
    notes = tuple(
        f"submodule {path} is not initialised: {label} is measured without it"
        for path in uninitialised(repository, commit)
    )
    return Version(label=label, commit=commit, notes=notes)


def _working_tree(repository: Repository) -> Version:
    head, changes = repository.commit("HEAD"), repository.changes()
    state = ", uncommitted changes" if changes.anything else ""
    label = f"working tree ({short(head)}{state})"
    notes = tuple(
        f"submodule {path} is dirty: the working tree is measured as it is, with "
        "what is changed in there"
        for path in changes.submodules
    )
    return Version(label=label, commit=None, notes=notes)


# Compiled modules that are only in the working tree because git does not track them.

NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")
NO_NAME: Final = re.compile(
    r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'"
)
NO_FILE: Final = re.compile(r"[\w./-]+\.(?:so|pyd|dylib)\b")

SUFFIXES: Final = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".dylib")


def unbuilt(error: str, top: str) -> str:
    """Say which compiled file of the repository at *top* a side lacks, if *error* does.

    Nothing if it is about something else, or git knows of no such file there.
    """
    path = next((p for p in _untracked(top) if _is_meant(p, error)), None)
    if path is None:
        return ""
    return (
        f"; the working tree has {path}, which git does not track, so no other version "
        "has it: build it on import, as torch.utils.cpp_extension.load does, or install "
        "it as a separate package"
    )


def _untracked(top: str) -> Iterator[PurePosixPath]:
    """Name the compiled files that git does not track or ignores."""
    listed = run_git(top, "ls-files", "--others", "-z").stdout.split("\0")
    return (PurePosixPath(name) for name in listed if name.endswith(SUFFIXES))


def _is_meant(path: PurePosixPath, error: str) -> bool:
    """Whether *error* misses the module, or the file, that is at *path*."""
    if any(PurePosixPath(f).name == path.name for f in NO_FILE.findall(error)):
        return True
    # ``pkg/_C.cpython-311-x86_64.so`` is imported as ``pkg._C``, maybe from a folder
    # above.
    module = (*path.parent.parts, path.name.partition(".")[0])
    return any(module[-len(name) :] == name for name in _missing_modules(error))


def _missing_modules(error: str) -> Iterator[tuple[str, ...]]:
    for name in NO_MODULE.findall(error):
        yield tuple(name.split("."))
    for name, package in NO_NAME.findall(error):
        yield (*package.split("."), name)


# ``git bisect`` in a working tree of its own, apart from the user's bisect state.


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
