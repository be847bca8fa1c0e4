"""The sides of a comparison: which code they are of, their packages, what they are called."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath
from typing import Final

from ..errors import ErrorId, QuotedError, UsageError
from ..model.environment import AS_INSTALLED, Overlay
from ..runner.git import Repository, git_environment, run_git, short
from ..runner.relocation import Relocation
from . import checkouts as guardian
from .checkouts import Tree


# Commits in a folder that is gone when this process is.

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


# The sides.

MOST_PACKAGES: Final = 3
"""Packages that are part of a side's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: its name, where its code is, and its other packages.

    ``relocation`` leads from the folder of the project to the one that is run. Without
    a ``commit`` that is what is there already, such as the working tree; a commit of
    ``repository`` has none of its own before it is checked out.
    """

    label: str
    relocation: Relocation
    repository: Repository | None = None
    commit: str | None = None
    packages: Overlay = AS_INSTALLED
    notes: tuple[str, ...] = ()

    def trees(self, path: str) -> list[Tree]:
        """Return what must be checked out at *path* for it."""
        if self.commit is None or self.repository is None:
            return []
        return list(trees_of(self.repository, self.commit, path))

    def with_packages(self, packages: Overlay) -> Side:
        """Return it with other *packages*, by which it is called too."""
        changes = packages.changes
        if not changes:
            return self
        more = f" and {len(changes) - MOST_PACKAGES} more" * (
            len(changes) > MOST_PACKAGES
        )
        label = f"{self.label} with {', '.join(changes[:MOST_PACKAGES])}{more}"
        notes = (f"other packages: {', '.join(changes)}",) if more else ()
        return replace(
            self, label=label, packages=packages, notes=(*self.notes, *notes)
        )

    def checked_out(self, at: Path) -> Side:
        """Return where its code is, once its trees are *at* a folder."""
        if self.commit is None:
            return self
        root = str(at.resolve())
        return replace(self, relocation=replace(self.relocation, root=root))

    def directory(self) -> Path:
        """Return its folder that is the present one; raise ``UsageError`` without one."""
        root = self.relocation.root
        inside = Path.cwd().resolve().relative_to(self.relocation.origin)
        found = Path(root, inside)
        if not found.is_dir():
            msg = (
                f"{self.label}: has no folder {inside}; run gpuperf ab in a folder that "
                "both versions have"
            )
            raise UsageError(msg, ErrorId.GP707)
        return found


def versions(
    repository: Repository, before: str | None, after: str | None
) -> tuple[Side, Side]:
    """Return the two versions that are meant, the earlier first.

    Without *after* it is the working tree, without *before* the commit at which HEAD
    left the main branch. Raises ``UsageError`` if a name is none.
    """
    if before is None:
        base, branch = repository.merge_base()
        label = f"merge base with {branch} ({short(base)})"
        earlier = _at(repository, base, label)
    else:
        earlier = committed(repository, before)
    if after is None:
        return earlier, working_tree(repository)
    return earlier, committed(repository, after)


def committed(repository: Repository, ref: str) -> Side:
    """Return the version that *ref* names; raise ``UsageError`` if it names none."""
    commit = repository.commit(ref)
    is_hash = commit.startswith(ref)
    return _at(
        repository, commit, short(commit) if is_hash else f"{ref} ({short(commit)})"
    )


def _at(repository: Repository, commit: str, label: str) -> Side:
    notes = tuple(
        f"submodule {path} is not initialised: {label} is measured without it"
        for path in uninitialised(repository, commit)
    )
    return Side(
        label=label,
        relocation=_in_place(repository.top),
        repository=repository,
        commit=commit,
        notes=notes,
    )


def working_tree(repository: Repository) -> Side:
    """Return the side that is the project as it is now."""
    head, (is_changed, submodules) = repository.commit("HEAD"), repository.changes()
    state = ", uncommitted changes" if is_changed else ""
    label = f"working tree ({short(head)}{state})"
    notes = tuple(
        f"submodule {path} is dirty: the working tree is measured as it is, with "
        "what is changed in there"
        for path in submodules
    )
    return Side(label=label, relocation=_in_place(repository.top), notes=notes)


def patched(repository: Repository, patch: Path, name: str) -> tuple[Side, Side]:
    """Return the files as they are, and with the *patch* that is called *name*.

    Both are checked out, so that neither has a file which the other lacks.
    """
    head = short(repository.commit("HEAD"))
    before, after = repository.snapshots(patch)
    return _at(repository, before, head), _at(repository, after, f"{head} with {name}")


def present() -> Side:
    """Return the project as it is now: its working tree, or a folder in no repository."""
    try:
        return working_tree(Repository.containing(Path.cwd()))
    except UsageError:
        here = str(Path.cwd().resolve())
        return Side(label="this folder", relocation=_in_place(here))


def other_folder(path: Path, origin: str) -> Side:
    """Return the side at *path*, which has another copy of the project at *origin*."""
    relocation = Relocation(origin=origin, root=str(path.resolve()))
    return Side(label=f"{path}", relocation=relocation)


def _in_place(top: str) -> Relocation:
    return Relocation(origin=top, root=top)


@contextmanager
def checked_out(sides: tuple[Side, Side]) -> Iterator[tuple[Side, Side, Path]]:
    """Yield both *sides* where their code is now, and a folder for what else they need.

    Raises ``UsageError`` if git cannot check one out.
    """
    before, after = sides
    trees = [*before.trees("before"), *after.trees("after")]
    with closing(Checkout(trees)) as checkout:
        folder = Path(checkout.folder)
        yield (
            before.checked_out(folder / "before"),
            after.checked_out(folder / "after"),
            folder,
        )


# Compiled modules that are only in the working tree, as git does not track them.

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
    # ``pkg/_C.cpython-311-x86_64.so`` is imported as ``pkg._C``, possibly from a folder
    # above.
    module = (*path.parent.parts, path.name.partition(".")[0])
    return any(module[-len(name) :] == name for name in _missing_modules(error))


def _missing_modules(error: str) -> Iterator[tuple[str, ...]]:
    for name in NO_MODULE.findall(error):
        yield tuple(name.split("."))
    for name, package in NO_NAME.findall(error):
        yield (*package.split("."), name)
