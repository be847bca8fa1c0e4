"""An edit of a file, and several edits of it joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of one file: its whole text ``before`` and ``after``.

    ``line`` is that of the finding, ``rule`` the one of its remedy. An edit that ``says``
    something changes what a reader of the output sees, such as when a loss is printed.
    """

    rule: str
    file: Path
    line: int
    before: str
    after: str
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """Why no rewrite is offered for the finding at ``line``."""

    rule: str
    file: Path
    line: int
    why: str


@dataclass(frozen=True, slots=True, order=True)
class Hunk:
    """Lines ``start`` to ``end`` of a text, counted from 0, and what replaces them."""

    start: int
    end: int
    lines: tuple[str, ...]


def hunks_of(edit: Edit) -> tuple[Hunk, ...]:
    """Return what *edit* changes, line by line, from the top."""
    before, after = (
        text.splitlines(keepends=True) for text in (edit.before, edit.after)
    )
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return tuple(
        Hunk(start, end, tuple(after[first:last]))
        for change, start, end, first, last in changes
        if change != "equal"
    )


def combined(before: str, edits: Sequence[Edit]) -> str | None:
    """Return the text *before* after all *edits*; ``None`` if two change the same lines."""
    found = sorted({hunk for edit in edits for hunk in hunks_of(edit)})
    if any(this.end > after.start for this, after in pairwise(found)):
        return None
    return "".join(_applied(before.splitlines(keepends=True), found))


def _applied(lines: Sequence[str], hunks: Iterable[Hunk]) -> Iterable[str]:
    at = 0
    for hunk in hunks:
        yield from lines[at : hunk.start]
        yield from hunk.lines
        at = hunk.end
    yield from lines[at:]
