"""A process that checks commits out and removes them again, whatever becomes of us.

Its argument says what to check out. It prints the folder, and waits for the end of its
standard input, which comes with the death of its parent. It is a script of its own, so
it needs nothing but git and the standard library.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final


TRIES: Final = 50
CLEANUP_PAUSE_SECONDS: Final = 0.1
"""A measuring process that is being killed may still write into its folder."""

Tree = Mapping[str, str]
"""A ``commit`` of a ``repository`` and the ``path`` in the folder where it is to be."""


def main() -> None:
    """Keep the trees of the order in the argument until the input ends."""
    # The parent may end by these signals; this process must outlive it to clean up.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    trees: list[Tree] = json.loads(sys.argv[1])
    folder = Path(tempfile.mkdtemp(prefix="gpuperf-ab-"))
    held = _held(folder)
    try:
        # The parent may have died during the checkout; the folder is removed all the
        # same.
        with suppress(BrokenPipeError):
            _say({"folder": str(folder), "error": _check_out(trees, folder)})
        sys.stdin.read()
    finally:
        os.close(held)
        _remove(trees, folder)


def _held(folder: Path) -> int:
    """Keep *folder* from the next run, which removes what killed processes have left."""
    part = folder / "owner.lock.part"
    lock = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(OSError):  # a file system without locks: the folder then stays
        fcntl.flock(lock, fcntl.LOCK_SH)
        part.rename(part.with_suffix(""))
    return lock


def _say(answer: Mapping[str, str | None]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _check_out(trees: Sequence[Tree], folder: Path) -> str | None:
    for tree in trees:
        options = ("--detach", "--quiet")
        place = str(folder / tree["path"])
        done = _git(tree, "worktree", "add", *options, place, tree["commit"])
        if done.returncode:
            return f"{tree['commit']}: {done.stderr.strip().removeprefix('fatal: ')}"
    return None


def _remove(trees: Sequence[Tree], folder: Path) -> None:
    # Submodules are inside of their superproject's tree, so they go first.
    for tree in reversed(trees):
        _git(tree, "worktree", "remove", "--force", str(folder / tree["path"]))
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(CLEANUP_PAUSE_SECONDS)
    for tree in trees:
        # git keeps a record of a tree that it could not remove itself.
        _git(tree, "worktree", "prune")


def _git(tree: Tree, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git without the hooks of the repository: none is meant for this."""
    return subprocess.run(  # noqa: S603 - no shell
        [
            *("git", "-C", tree["repository"], "-c", "core.hooksPath=/dev/null"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )


if __name__ == "__main__":
    main()
