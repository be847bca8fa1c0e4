"""One run as Markdown: for the summary of a job, and for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from html import escape
from itertools import islice
from typing import Final

from ...model.codec import decode
from ...model.results import Results
from ...model.verdict import TestVerdict
from ...visible import visible
from ..command import ACCEPTABLE
from ..command import Invocation
from ..command import accept_command
from ..command import at_root
from ..screen.counts import COUNTED_WORDS
from ..screen.failure import failure_text
from .worst_findings import FAILING
from .worst_findings import Remark
from .worst_findings import cells


# Markdown from untrusted text: names of tests, messages of errors.

LONGEST_CELL: Final = 300
"""Characters of a name that are shown in a table."""

_TAIL: Final = 60

_SPECIAL: Final = re.compile(
    r"[|`*~\[\\@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE
)
"""What means something to GitHub's Markdown in the middle of a line, also in HTML."""


def code(text: str, longest: int = LONGEST_CELL) -> str:
    """*text* in one line as HTML that Markdown leaves alone, its middle cut if too long."""
    shown = visible(text)
    if len(shown) > longest:
        shown = f"{shown[: longest - _TAIL]}...{shown[-_TAIL:]}"
    # As numeric references, which Markdown does not interpret. NUL marks them until
    # `escape` is through, which would escape their ampersand.
    marked = _SPECIAL.sub(lambda found: f"\0{ord(found[0])};", shown)
    return f"<code>{escape(marked).replace(chr(0), '&#')}</code>"


def preformatted(lines: Iterable[str]) -> str:
    """Return *lines* in a block that Markdown does not interpret."""
    text = "\n".join(map(visible, lines))
    return f"<pre>{escape(text)}</pre>"


def row(cells: Sequence[str]) -> str:
    """One line of a table; *cells* are Markdown already."""
    return f"| {' | '.join(cells)} |"


def size(text: str) -> int:
    """Bytes of *text* and the end of its line."""
    return len(text.encode("utf-8", "replace")) + 1


def fitting(lines: Iterable[str], room: int) -> list[str]:
    """Return the first of *lines* that fit into so many bytes together."""
    kept: list[str] = []
    for line in lines:
        room -= size(line)
        if room < 0:
            break
        kept.append(line)
    return kept


MOST_DETAILS: Final = 10
MOST_DETAIL_LINES: Final = 60
LONGEST_LIST: Final = 2000
MOST_DROPPED_NAMED: Final = 5
"""Tests that the command to accept names; where more failed, it takes all."""

JOB_SUMMARY_HEADER: Final = ("outcome", "metric", "against", "now", "change", "test")
ALIGNED: Final = (":--", ":--", "--:", "--:", "--:", ":--")
RESERVED_CHARS: Final = 200
"""Bytes for the line that says what is left out."""

FINISHED_EXITS: Final = frozenset({0, 1, 5})
"""Exit statuses of pytest: all passed, some failed, there were none."""


def run_markdown(
    results: Results,
    found: Sequence[Remark],
    *,
    baseline_file: str,
    pending: str,
    room: int,
) -> str:
    """Say what came of a run in at most *room* bytes, regressions first.

    *found* are its remarks, *pending* is the file that can be accepted, empty if there
    is none.
    """
    head = [f"### {title(results)}", "", *_counted(results), *_notes(results)]
    hardware = results.head.hardware
    tail = [
        *_accept(found, pending, baseline_file),
        *_details(found, at_root(hardware), strict=results.head.strict),
    ]
    # At most half of the room: the table must have some however many failures are
    # explained.
    tail = fitting(tail, (room - sum(map(size, head))) // 2)
    left = room - sum(map(size, [*head, *tail])) - RESERVED_CHARS
    text = "\n".join([*head, *_table(found, left), *tail, ""])
    # In bytes, as the limit of a summary is: beyond it GitHub drops all of the text.
    return text.encode("utf-8", "replace")[: max(room, 0)].decode("utf-8", "ignore")


def title(results: Results) -> str:
    """Name how many tests failed, and whether the run got to its end."""
    hardware, status = results.head.hardware, results.head.exit_status
    where = f" on {hardware.key}" if hardware else ""
    ended = "" if status in FINISHED_EXITS else f", pytest exited with {status}"
    tests = len(results.tests)
    if not tests:
        return f"gpuperf: no {'result' if ended else 'test was measured'}{ended}"
    failed = sum(record.ending in FAILING for record in results.tests.values())
    plural = "" if tests == 1 else "s"
    return f"gpuperf: {failed or 'none'} of {tests} test{plural} failed{where}{ended}"


def _counted(results: Results) -> Iterator[str]:
    words = {outcome.value: word for outcome, word in COUNTED_WORDS.items()}
    counts = ", ".join(
        f"{number} {words.get(name, name)}" for name, number in results.counts.items()
    )
    if counts:
        yield counts
        yield ""
    if results.head.unreported:
        yield f"**{len(results.head.unreported)} without a result**"
        yield ""


def _notes(results: Results) -> Iterator[str]:
    for note in results.head.notes:
        yield code(note, LONGEST_LIST)
        yield ""


def _table(found: Sequence[Remark], room: int) -> Iterator[str]:
    if not found:
        return
    header = [row(JOB_SUMMARY_HEADER), row(ALIGNED)]
    rows = fitting(map(_row, found), room - sum(map(size, header)))
    yield from header
    yield from rows
    yield ""
    if len(rows) < len(found):
        more = len(found) - len(rows)
        yield f"{more} more left out, none of them worse: see `.gpuperf/results.json`"
        yield ""


def _row(remark: Remark) -> str:
    word = f"**{remark.word}**" if remark.fails else remark.word
    metric = code(remark.metric) if remark.metric else ""
    return row([word, metric, *cells(remark), code(remark.test)])


def _details(
    found: Sequence[Remark], invocation: Invocation, *, strict: bool
) -> Iterator[str]:
    """Explain the worst failures, each as a block on one line of the list."""
    # Reversed twice: the worst remark of a test is the last one written and so the one
    # kept, and the worst test comes first again.
    failing = {remark.test: remark for remark in reversed(found) if remark.fails}
    worst = islice(reversed(failing.items()), MOST_DETAILS)
    for test, remark in worst:
        explained = _explained(remark, invocation, strict=strict)
        lines = [line[:LONGEST_LIST] for line in explained]
        summary = f"<details><summary>{code(test)}</summary>"
        block = preformatted(lines[:MOST_DETAIL_LINES])
        yield f"{summary}\n\n{block}\n\n</details>\n"


def _explained(
    remark: Remark, invocation: Invocation, *, strict: bool
) -> Sequence[str]:
    if remark.call is None:
        return [remark.record.headline or remark.word]
    verdict = decode(TestVerdict, remark.call)
    text = failure_text(
        verdict,
        nodeid=remark.test,
        invocation=invocation,
        strict=strict,
    )
    return text.splitlines()


def _accept(found: Sequence[Remark], pending: str, baseline_file: str) -> Iterator[str]:
    tests = dict.fromkeys(
        remark.test for remark in found if remark.fails and remark.outcome in ACCEPTABLE
    )
    if pending and tests:
        named = list(tests) if len(tests) <= MOST_DROPPED_NAMED else []
        yield (
            "If that is meant: download `.gpuperf` from this run, then accept what it "
            "measured and review the diff."
        )
        yield ""
        folder = baseline_file.rpartition("/")[0]
        yield preformatted([accept_command(pending, folder, named)])
        yield ""
