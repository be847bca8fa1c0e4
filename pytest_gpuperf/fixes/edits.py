"""An edit of a file, and several edits of it joined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final


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
class _Hunk:
    """Lines ``start`` to ``end`` of a text, counted from 0, and what replaces them."""

    start: int
    end: int
    lines: tuple[str, ...]


def combined(before: str, edits: Sequence[Edit]) -> str | None:
    """Return the text *before* after all *edits*; ``None`` if two change the same words."""
    lines = before.splitlines(keepends=True)
    afters = (edit.after.splitlines(keepends=True) for edit in edits)
    hunks = [hunk for after in afters for hunk in _hunks(lines, after)]
    joined = _joined(lines, hunks, _by_words)
    return None if joined is None else "".join(joined)


Join = Callable[[Sequence[str], Sequence[_Hunk]], list[str] | None]


def _joined(
    parts: Sequence[str], hunks: Iterable[_Hunk], join: Join
) -> list[str] | None:
    """Return *parts* after all *hunks*; those that overlap are left to *join*."""
    groups: list[list[_Hunk]] = []
    end = -1
    for hunk in sorted(set(hunks)):
        groups += [] if hunk.start < end else [[]]
        groups[-1].append(hunk)
        end = max(end, hunk.end)
    result: list[str] = []
    at = 0
    for group in groups:
        new = [*group[0].lines] if len(group) == 1 else join(parts, group)
        if new is None:
            return None
        result += [*parts[at : group[0].start], *new]
        at = max(hunk.end for hunk in group)
    return [*result, *parts[at:]]


def _by_words(lines: Sequence[str], group: Sequence[_Hunk]) -> list[str] | None:
    """Join changes of the same lines, if they are of other words."""
    start, end = group[0].start, max(hunk.end for hunk in group)
    texts = ([*lines[start : h.start], *h.lines, *lines[h.end : end]] for h in group)
    words = _WORD.findall("".join(lines[start:end]))
    changes = (h for text in texts for h in _hunks(words, _WORD.findall("".join(text))))
    return _joined(words, changes, lambda _, __: None)


_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")


def _hunks(before: Sequence[str], after: Sequence[str]) -> Iterator[_Hunk]:
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for change, start, end, first, last in changes:
        if change != "equal":
            yield _Hunk(start, end, tuple(after[first:last]))
