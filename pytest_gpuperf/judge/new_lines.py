"""Finds lines that are new since the baseline, or that do more than they did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace

from ..model.finding import CALLED
from ..model.finding import MOST_LINES_OF_FINDING
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.finding import Key
from ..model.finding import StoredLine
from ..model.finding import file_of
from ..model.finding import is_stored
from ..model.finding import key_of
from ..model.finding import key_of_line


def compared(
    findings: Sequence[Finding], lines: Sequence[StoredLine] | None
) -> tuple[Finding, ...]:
    """Say of each of *findings* what its line did when *lines* were stored.

    ``None`` for lines that nobody stored: nothing is known to be new. Lines that run
    operations say something where they run more of them than before, and lines that
    call those only where they are new.
    """
    if lines is None:
        return tuple(f for f in findings if f.kind is not FindingKind.WORK)
    return tuple(_compared(findings, lines))


def _compared(
    findings: Sequence[Finding], lines: Sequence[StoredLine]
) -> Iterator[Finding]:
    stored: Counter[tuple[str, Key]] = Counter()
    for line in lines:
        stored[line.file, key_of_line(line)] += line.per_step
    # Lines of a kind may have been left out, none of which did more than the last.
    last = lines[-1] if len(lines) >= MOST_LINES_OF_FINDING else None
    unknown = {last.kind: last.per_step} if last else {}
    now: Counter[tuple[str, Key]] = Counter()
    for finding in findings:
        now[file_of(finding), key_of(finding)] += finding.per_step
    for finding in findings:
        if not is_stored(finding):
            yield finding
            continue
        file, key = file_of(finding), key_of(finding)
        before, after = _stored(stored, file, key), now[file, key]
        is_more = after > (before or unknown.get(key[0], 0))
        if is_more and not (before and finding.op == CALLED):
            yield replace(finding, stored=before)
        elif finding.kind is not FindingKind.WORK:
            yield replace(finding, stored=finding.per_step)


def _stored(counts: Mapping[tuple[str, Key], int], file: str, key: Key) -> int:
    """Return how often a line did it; where the file has another name, by any file."""
    here = counts.get((file, key), 0)
    others = (count for (_, known), count in counts.items() if known == key)
    return here or max(others, default=0)
