"""The commit whose code a baseline was recorded on.

A baseline names the commit that was checked out when it was measured. That is its code
only where nothing had been changed since, and a branch that was squashed leaves no such
commit. Then the commit that brought the baseline into the repository has its code: the
two are committed together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from typing import Final

from ..model.baseline import Entry
from ..model.baseline import Origin
from .repository import Repository
from .repository import short


WAY_OUT: Final = "commit it with the code it is of, or name a commit: --gpuperf-ref=REF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A commit and what it did; without a ``commit``, ``why`` there is none."""

    commit: str = ""
    words: str = ""
    why: str = ""


def recording_of(
    repository: Repository, path: str, call: str, entry: Entry | None
) -> Recording:
    """Find the code of *entry*, the baseline of *call* in the file at *path*."""
    if entry is None:
        return Recording(why="it has no baseline, so no commit recorded one")
    origin = entry.origin
    if origin and not origin.dirty and repository.has(origin.commit):
        return Recording(
            commit=origin.commit, words=", where its baseline was recorded"
        )
    stored = commit_that_stored(repository, path, call)
    if stored is None:
        return Recording(why=f"{_unknown(origin)}: {WAY_OUT}")
    if repository.is_cut_off(stored):
        deepen = repository.deepen("its history is cut off")
        return Recording(why=f"{_lost(origin)}{deepen}")
    return Recording(commit=stored, words=f", which stored its baseline{_dirt(origin)}")


def commit_that_stored(repository: Repository, path: str, call: str) -> str | None:
    """Return the commit that gave *call* the baseline it has in the file at *path*.

    ``None`` where no commit has what the file says now.
    """
    file = Path(repository.top, path)
    now, found = _entries(file.read_text(encoding="utf-8")).get(call), None
    for commit in repository.commits_of(path):
        if _entries_at(repository, commit, path).get(call) != now:
            break
        found = commit
    return found


@lru_cache(maxsize=64)
def _entries_at(repository: Repository, commit: str, path: str) -> dict[str, Any]:
    return _entries(repository.text_at(commit, path) or "")


def _entries(text: str) -> dict[str, Any]:
    """Return what a file says of each test; nothing where it is no baseline file."""
    try:
        entries = json.loads(text)["tests"]
    except (ValueError, KeyError, TypeError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _unknown(origin: Origin | None) -> str:
    if origin is None:
        return "its baseline names no commit, and is in none"
    if origin.dirty:
        return (
            f"its baseline was recorded from uncommitted changes on top of "
            f"{short(origin.commit)}, and is in no commit"
        )
    return (
        f"its baseline was recorded at {short(origin.commit)}, which is not here, and is "
        "in no commit"
    )


def _lost(origin: Origin | None) -> str:
    if origin is None or origin.dirty:
        return "the commit that stored its baseline is not here"
    return f"its baseline was recorded at {short(origin.commit)}, which is not here"


def _dirt(origin: Origin | None) -> str:
    if origin is None or not origin.dirty:
        return ""
    return f", recorded from uncommitted changes on top of {short(origin.commit)}"
