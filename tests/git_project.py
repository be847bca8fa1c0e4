"""A project under git whose steps play the script of their own version."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final


SCRIPTED: Final = "--device=scripted"


class GitProject:
    """A repository with a test file and a script; its path has a space in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._commits = 0
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("pytest.ini", "[pytest]\n")
        self.tests("def test_step(gpuperf): gpuperf(int)\n")
        self.script(step_ms=10.0)

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.path), *arguments],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def tests(self, source: str) -> None:
        self.write("test_it.py", source)

    def script(self, **steps: object) -> None:
        self.scripts({"*": steps})

    def scripts(self, tests: Mapping[str, object]) -> None:
        self.write("script.json", json.dumps(tests))

    def commit(self) -> str:
        """Commit everything and return the seven characters that name it."""
        self._commits += 1  # or two could be one, within a second
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", f"--message={self._commits}")
        return self.git("rev-parse", "--short=7", "HEAD")

    @property
    def worktrees(self) -> list[str]:
        listed = self.git("worktree", "list", "--porcelain").splitlines()
        return [line for line in listed if line.startswith("worktree ")]

    @property
    def is_untouched(self) -> bool:
        """Whether git knows of no other working tree, nor ever will."""
        return len(self.worktrees) == 1 and not (self.path / ".git/worktrees").exists()
