"""One run as Markdown: for the summary of a job, and for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from itertools import islice
from typing import Final

from ..model.codec import decode
from ..model.results import Results
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from .command import accept_command
from .failure import failure_text
from .markdown import code
from .markdown import fitting
from .markdown import preformatted
from .markdown import row
from .markdown import size
from .worst import FAILING
from .worst import Remark
from .worst import cells


MOST_DETAILS: Final = 10
MOST_DETAIL_LINES: Final = 60
LONGEST_LINE: Final = 2000
MOST_NAMED: Final = 5
"""Tests that the command to accept names; where more failed, it takes all."""

HEADER: Final = ("outcome", "metric", "against", "now", "change", "test")
ALIGNED: Final = (":--", ":--", "--:", "--:", "--:", ":--")
RESERVE: Final = 200
"""Bytes for the line that says what is left out."""

FINISHED: Final = frozenset({0, 1, 5})
"""Exit statuses of pytest: all passed, some failed, there were none."""

ACCEPTABLE: Final = frozenset(
    {Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.NO_BASELINE, Outcome.IMPROVED}
)


def run_markdown(
    results: Results,
    found: Sequence[Remark],
    *,
    baseline_file: str,
    pending: str,
    room: int,
) -> str:
    """Say what came of a run in at most *room* bytes, regressions first.

    *found* are its remarks, *pending* is the file that can be accepted, empty where there is none.
    """
    head = [f"### {title(results)}", "", *_counted(results), *_notes(results)]
    tail = [*_accept(found, pending), *_details(found, baseline_file)]
    tail = fitting(tail, (room - sum(map(size, head))) // 2)
    left = room - sum(map(size, [*head, *tail])) - RESERVE
    text = "\n".join([*head, *_table(found, left), *tail, ""])
    return text.encode("utf-8", "replace")[: max(room, 0)].decode("utf-8", "ignore")


def title(results: Results) -> str:
    """Name how many tests failed, and whether the run got to its end."""
    hardware, status = results.head.hardware, results.head.exit_status
    where = f" on {hardware.key}" if hardware else ""
    ended = "" if status in FINISHED else f", pytest exited with {status}"
    tests = len(results.tests)
    if not tests:
        return f"gpuperf: no {'result' if ended else 'test was measured'}{ended}"
    failed = sum(record.ending in FAILING for record in results.tests.values())
    plural = "" if tests == 1 else "s"
    return f"gpuperf: {failed or 'none'} of {tests} test{plural} failed{where}{ended}"


def _counted(results: Results) -> Iterator[str]:
    counts = ", ".join(f"{number} {word}" for word, number in results.counts.items())
    if counts:
        yield counts
        yield ""
    if results.head.unreported:
        yield f"**{len(results.head.unreported)} without a result**"
        yield ""


def _notes(results: Results) -> Iterator[str]:
    for note in results.head.notes:
        yield code(note, LONGEST_LINE)
        yield ""


def _table(found: Sequence[Remark], room: int) -> Iterator[str]:
    if not found:
        return
    header = [row(HEADER), row(ALIGNED)]
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


def _details(found: Sequence[Remark], baseline_file: str) -> Iterator[str]:
    """Explain the worst failures, a block each that stands on one line of the list."""
    failing = {remark.test: remark for remark in reversed(found) if remark.fails}
    worst = islice(reversed(failing.items()), MOST_DETAILS)
    for test, remark in worst:
        lines = [line[:LONGEST_LINE] for line in _explained(remark, baseline_file)]
        summary = f"<details><summary>{code(test)}</summary>"
        block = preformatted(lines[:MOST_DETAIL_LINES])
        yield f"{summary}\n\n{block}\n\n</details>\n"


def _explained(remark: Remark, baseline_file: str) -> Sequence[str]:
    if remark.call is None:
        return [remark.record.headline or remark.word]
    verdict = decode(TestVerdict, remark.call)
    text = failure_text(verdict, nodeid=remark.test, baseline_file=baseline_file)
    return text.splitlines()


def _accept(found: Sequence[Remark], pending: str) -> Iterator[str]:
    tests = dict.fromkeys(
        remark.test for remark in found if remark.fails and remark.outcome in ACCEPTABLE
    )
    if pending and tests:
        named = list(tests) if len(tests) <= MOST_NAMED else []
        yield (
            "If that is meant: download `.gpuperf` from this run, then accept what it "
            "measured and review the diff."
        )
        yield ""
        yield preformatted([accept_command(pending, "", named)])
        yield ""
