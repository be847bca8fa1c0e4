"""Finds the commit with the code that a baseline is of, and the lines that it lacks.

That is the commit that brought the baseline into the repository: code and baseline are
committed together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Final

from ..baselines.store import path_of
from ..errors import UsageError
from ..files import read_regular_text
from ..model.baseline import Entry
from ..model.environment import Hardware
from ..model.finding import Finding, FindingKind, Location
from .git import Repository, short


class RecordedCode:
    """Asks the repository of the project, if there is one, about its baselines."""

    def __init__(self, root: Path, baselines: Path, hardware: Hardware) -> None:
        """*baselines* is the folder of what was recorded on *hardware*, and on others."""
        self._root = root
        self._file = _real(path_of(baselines, hardware))
        self._repository: Repository | None = None
        try:
            self._repository = Repository.containing(root)
        except UsageError:  # a run is fine without git
            return

    @property
    def has_commits(self) -> bool:
        """Whether there is a repository with a commit in it."""
        return self._repository is not None and self._repository.has("HEAD")

    def commit_of(self, call: str, entry: Entry | None) -> str:
        """Return the commit with the code of *entry*, the baseline of *call*.

        Empty if git knows none.
        """
        repository = self._repository
        if repository is None or entry is None:
            return ""
        path = os.path.relpath(self._file, repository.top)
        stored = commit_that_stored(repository, path, call)
        return "" if stored is None or repository.is_cut_off(stored) else stored

    def with_changes(
        self, findings: Sequence[Finding], call: str, entry: Entry | None
    ) -> tuple[Finding, ...]:
        """Ask git about the lines; nothing is said if it does not know that code."""
        repository = self._repository
        commit = self.commit_of(call, entry) if findings else ""
        if repository is None or not commit:
            return tuple(findings)
        changed = cache(partial(repository.changed_lines, commit))

        def is_changed(at: Location) -> bool:
            path = os.path.relpath(_real(self._root / at.file), repository.top)
            return at.line in changed(path)

        return with_changes(findings, is_changed, short(commit))


def commit_that_stored(repository: Repository, path: str, call: str) -> str | None:
    """Return the commit that gave *call* the baseline it has in the file at *path*.

    ``None`` if no commit has what the file says now.
    """
    file = Path(repository.top, path)
    now, found = _entries(read_regular_text(file)).get(call), None
    # From the newest to the oldest: the last one that still has today's baseline has
    # stored it.
    for commit in repository.commits_of(path):
        if _entries_at(repository, commit, path).get(call) != now:
            break
        found = commit
    return found


@lru_cache(maxsize=64)
def _entries_at(repository: Repository, commit: str, path: str) -> dict[str, Any]:
    return _entries(repository.text_at(commit, path) or "")


def _entries(text: str) -> dict[str, Any]:
    """Return what a file says of each test; nothing if it is no baseline file."""
    try:
        entries = json.loads(text)["tests"]
    except (ValueError, KeyError, TypeError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


# Lines that are not as they were in a commit.

LINES_THAT_CHANGE: Final = frozenset(
    {
        FindingKind.TIME,
        FindingKind.PEAK,
        FindingKind.MEMORY,
        FindingKind.LEFT,
        FindingKind.GARBAGE,
    }
)
"""Kinds of findings with lines that no baseline stores: git alone knows what is new."""

LEAST_HELD_SHARE: Final = 0.05
"""Share of the peak below which the memory of a line explains no growth."""


def with_changes(
    findings: Sequence[Finding], is_changed: Callable[[Location], bool], since: str
) -> tuple[Finding, ...]:
    """Say of each of *findings* if its line changed *since* a commit."""
    most_bytes = max((found.held_bytes for found in findings), default=0)
    return tuple(
        replace(found, changed_since=since)
        if _may_explain(found, most_bytes)
        and found.location
        and is_changed(found.location)
        else found
        for found in findings
    )


def _may_explain(finding: Finding, most_bytes: int) -> bool:
    small = finding.held_bytes < LEAST_HELD_SHARE * most_bytes
    is_time = finding.kind is FindingKind.TIME
    return finding.kind in LINES_THAT_CHANGE and (is_time or not small)
