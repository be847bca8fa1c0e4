"""Asks git about the project: no file, branch or index of it changes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Final

from ..errors import ErrorId, UsageError
from ..files import scratch_folder


MAIN_BRANCHES: Final = ("main", "master", "origin/HEAD")
"""What a change is usually to be merged into, most usual first."""

SHORT_HASH: Final = 7
"""Characters that name a commit to a person."""

SUBMODULE_MODE: Final = "160000"

NO_REPOSITORY: Final = (
    "gpuperf ab compares two versions of a project, so run it where git has the "
    "project's files"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A git repository with a working tree, known by the folder at its top."""

    top: str

    @classmethod
    def containing(cls, directory: Path) -> Repository:
        """Find the repository of *directory*; raise ``UsageError`` if there is none."""
        found = run_git(directory, "rev-parse", "--show-toplevel")
        if found.returncode or not found.stdout.strip():
            words = found.stderr.strip().removeprefix("fatal: ") or "no working tree"
            msg = f"{directory}: git says {words!r}; {NO_REPOSITORY}"
            raise UsageError(msg, ErrorId.GP701)
        return cls(top=os.path.realpath(found.stdout.rstrip("\n")))

    def commit(self, ref: str) -> str:
        """Return the commit that *ref* names; raise ``UsageError`` if it names none."""
        commit = self._known_commit(ref)
        if commit is None:
            msg = (
                f"{ref}: git knows no such commit in {self.top}; expected a branch, a "
                f"tag or a commit{self.deepen('it may be one that is not here')}"
            )
            raise UsageError(msg, ErrorId.GP702)
        return commit

    def merge_base(self) -> tuple[str, str]:
        """Return where HEAD left the main branch, and that branch's name.

        Raises ``UsageError`` if there is no such commit.
        """
        head = self.commit("HEAD")
        branch = next((b for b in MAIN_BRANCHES if self._known_commit(b)), None)
        if branch is None:
            msg = (
                "found none of main, master and origin/HEAD to compare with; name a "
                f"commit: `gpuperf ab REF`{self.deepen('it has one branch')}"
            )
            raise UsageError(msg, ErrorId.GP703)
        found = self._ask("merge-base", head, branch)
        if found is None:
            msg = (
                f"HEAD and {branch} have no commit in common here; name a commit: "
                f"`gpuperf ab REF`{self.deepen('the common one may not be here')}"
            )
            raise UsageError(msg, ErrorId.GP703)
        return found, branch

    def changes(self) -> tuple[bool, tuple[str, ...]]:
        """Return whether anything is not committed, and the submodules with changes."""
        lines = (self._ask("status", "--porcelain=v2") or "").splitlines()
        fields = [line.split(" ", 8) for line in lines if line.startswith("1 ")]
        # Format 2 of porcelain: the third field begins with S for a submodule, N
        # otherwise.
        dirty = tuple(f[8] for f in fields if f[2].startswith("S"))
        return bool(lines), dirty

    def commits_of(self, path: str) -> Iterator[str]:
        """Name the commits that changed the file at *path*, newest first."""
        yield from (
            self._ask("log", "--format=%H", "--", f":(literal){path}") or ""
        ).splitlines()

    def text_at(self, commit: str, path: str) -> str | None:
        """Return the text of *path*, relative to the top, in *commit*."""
        return self._ask("show", f"{commit}:{path}")

    def changed_lines(
        self, commit: str, path: str, *, until: str | None = None
    ) -> frozenset[int]:
        """Number the lines of *path*, relative to the top, that are not as in *commit*.

        They are those of the commit *until*, or of the working tree. A file that was
        moved counts as the one that it was. Of a file that git does not track nobody
        knows what it was: no line of it is named.
        """
        commits = (commit,) if until is None else (commit, until)
        before = self._files_before(commits).get(path, path)
        if not before:
            text = None if until is None else self.text_at(until, path)
            written = (
                Path(self.top, path).read_bytes() if text is None else text.encode()
            )
            return frozenset(range(1, written.count(b"\n") + 2))
        places = (f":(top,literal){name}" for name in dict.fromkeys((before, path)))
        shown = self._ask(
            "diff", "-M", "-U0", "--no-color", "--no-ext-diff", *commits, "--", *places
        )
        hunks = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", shown or "", re.MULTILINE)
        return frozenset(
            number
            for first, count in hunks
            for number in range(int(first), int(first) + int(count or 1))
        )

    def _files_before(self, commits: Sequence[str]) -> dict[str, str]:
        """Return by path what a file was in the first; nothing if it is a new one."""
        found: dict[str, str] = {}
        listed = ("diff", "-M", "--name-status", "-z", "--diff-filter=AR", *commits)
        fields = iter((self._ask(*listed) or "").split("\0"))
        for status in filter(None, fields):
            # A new file has one name here, a moved one had another before.
            before = "" if status == "A" else next(fields)
            found[next(fields)] = before
        return found

    def snapshots(self, patch: Path) -> tuple[str, str]:
        """Return commits of the files as they are, and of those with *patch* applied.

        No branch has them, and neither the files nor the index change. Raises
        ``UsageError`` if git cannot read the files or apply the patch.
        """
        with scratch_folder() as scratch:
            index = Path(scratch, "index")
            known = Path(self.top, self._ask("rev-parse", "--git-path", "index") or "")
            # With what it knows of the files only those are read that were changed.
            if known.is_file():
                copyfile(known, index)
            self._with("take the files as they are", "add", "--all", index=index)
            before = self._committed(index)
            apply = ("apply", "--cached", str(patch.resolve()))
            self._with("apply the patch", *apply, index=index)
            return before, self._committed(index)

    def _committed(self, index: Path) -> str:
        """Return a commit of what is in *index*."""
        doing = "take the files as they are"
        tree = self._with(doing, "write-tree", index=index)
        who = ("-c", "user.name=gpuperf", "-c", "user.email=gpuperf@localhost")
        made = ("commit-tree", tree, "-p", "HEAD", "-m", doing)
        return self._with(doing, *who, *made, index=index)

    def _with(self, doing: str, *arguments: str, index: Path) -> str:
        """Return what git prints; raise ``UsageError`` with its words if it fails."""
        done = run_git(self.top, *arguments, index=index)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
            words = last.removeprefix("fatal: ").removeprefix("error: ")
            msg = f"git cannot {doing}: {words}"
            raise UsageError(msg, ErrorId.GP720)
        return done.stdout.strip()

    def is_cut_off(self, commit: str) -> bool:
        """Whether what *commit* came from is not in this clone."""
        parents = self._ask("rev-parse", "--verify", "--quiet", f"{commit}^")
        return parents is None and self._is_shallow

    def submodules(self, commit: str) -> Iterator[tuple[str, str]]:
        """Yield the path of each submodule of *commit*, and the commit that it is at."""
        # NUL ends each entry: without -z git would quote paths with special characters.
        listed = self._ask("ls-tree", "-r", "-z", commit) or ""
        for entry in filter(None, listed.split("\0")):
            mode, _, rest = entry.partition(" ")
            if mode == SUBMODULE_MODE:
                found, _, path = rest.removeprefix("commit ").partition("\t")
                yield path, found

    def inside(self, path: str) -> Repository | None:
        """Return the submodule at *path*, if it is initialised."""
        top = Path(self.top, path)
        return Repository(top=str(top)) if (top / ".git").exists() else None

    def has(self, commit: str) -> bool:
        return self._known_commit(commit) is not None

    def _known_commit(self, ref: str) -> str | None:
        return self._ask("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")

    @property
    def _is_shallow(self) -> bool:
        return self._ask("rev-parse", "--is-shallow-repository") == "true"

    def deepen(self, why: str) -> str:
        """Say how to fetch the rest of a clone that has only the newest commits."""
        if not self._is_shallow:
            return ""
        return (
            f"; this clone is shallow and {why}: fetch the rest with `git fetch "
            "--unshallow`, or some with `git fetch --deepen=100`"
        )

    def _ask(self, *arguments: str) -> str | None:
        found = run_git(self.top, *arguments)
        return None if found.returncode else found.stdout.rstrip("\n")


def run_git(
    directory: str | Path, *arguments: str, index: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run git in *directory*; raises ``UsageError`` if there is no git.

    With an *index* it leaves that of the repository alone.
    """
    try:
        return subprocess.run(  # noqa: S603 - no shell
            ["git", "-C", str(directory), *arguments],  # noqa: S607 - the user's own
            capture_output=True,
            text=True,
            encoding="utf-8",
            # Git prints paths and names as the bytes that they are, in any encoding.
            errors="surrogateescape",
            stdin=subprocess.DEVNULL,
            env=git_environment() | ({"GIT_INDEX_FILE": str(index)} if index else {}),
            check=False,
        )
    except FileNotFoundError:
        msg = "found no git: gpuperf ab takes the versions of a project from it"
        raise UsageError(msg, ErrorId.GP704) from None


def git_environment() -> dict[str, str]:
    """This process's environment without the repository that a git hook works on."""
    kept = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    # A hook runs with GIT_DIR set, which would overrule `-C`. The locale keeps the
    # English prefix `fatal: `, which is cut off in messages.
    return {**kept, "LC_ALL": "C"}


_LOCAL: Final = frozenset(
    {
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)


def short(commit: str) -> str:
    return commit[:SHORT_HASH]
