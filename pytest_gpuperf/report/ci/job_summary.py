"""One run as Markdown: for the summary of a job, and for a comment on a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Final

from ...judge.readings import WOULD_HAVE_FAILED
from ...model.baseline import BaselineChange
from ...model.metrics import counted
from ...model.run import Ending, Head, Record, Results
from ...model.verdict import Outcome
from ...visible import visible
from ..command import (
    ACCEPTABLE,
    BASELINES,
    Invocation,
    accept_command,
    accept_lines_command,
    at_root,
)
from ..document import markdown_row, terminal
from ..headline import title as title_of
from ..judged_calls import PASSABLE, JudgedCall
from ..numbers import join_fitting
from ..screen.counts import COUNTED_WORDS, UNCHECKED_WORDS
from ..screen.failure import Failure, only_line, screen_room
from ..screen.findings import SharedCauses
from ..screen.summary import refresh_cells
from .github import Sources


# Markdown from untrusted text: names of tests, messages of errors.

LONGEST_CELL: Final = 300
"""Characters of a name that are shown in a table."""

LONGEST_TEST: Final = 100
"""Characters of a test's name there: a wider table does not fit the page."""

LONGEST_PLACE: Final = 40

_TAIL: Final = 60

_SPECIAL: Final = re.compile(
    r"[|`*~\[\\@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE
)
"""What means something to GitHub's Markdown in the middle of a line, also in HTML."""


def code(text: str, longest: int = LONGEST_CELL) -> str:
    """*text* in one line as HTML that Markdown leaves alone, its middle cut if too long."""
    shown = visible(text)
    if len(shown) > longest:
        tail = min(_TAIL, longest // 2)
        shown = f"{shown[: longest - tail]}...{shown[-tail:]}"
    return f"<code>{escaped(shown)}</code>"


def escaped(text: str) -> str:
    """*text* in one line as HTML that Markdown leaves alone."""
    # As numeric references, which Markdown does not interpret. NUL marks them until
    # `escape` is through, which would escape their ampersand.
    marked = _SPECIAL.sub(lambda found: f"\0{ord(found[0])};", visible(text))
    return escape(marked).replace(chr(0), "&#")


def preformatted(lines: Iterable[str]) -> str:
    """Return *lines* in a block that Markdown does not interpret."""
    text = "\n".join(map(visible, lines))
    return f"<pre>{escape(text)}</pre>"


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


MOST_IN_A_CELL: Final = 5
"""Tests that a row names, if one line fails them alike."""

MOST_EXAMINED: Final = 200
"""Failures among which those to explain are looked for."""

MOST_DETAILS: Final = 10
MOST_DETAIL_LINES: Final = 60
LONGEST_LIST: Final = 2000
MOST_DROPPED_NAMED: Final = 5
"""Tests that the command to accept names; where more failed, it takes all."""

FAILED_HEADER: Final = ("test", "what", "where")
OTHERS_HEADER: Final = ("test", "what")
STORED_HEADER: Final = ("test", "metric", "before", "after", "change")
RESERVED_CHARS: Final = 300
"""Bytes for the lines that say what is left out."""

FINISHED_EXITS: Final = frozenset({0, 1, 5})
"""Exit statuses of pytest: all passed, some failed, there were none."""

GREEN_EXITS: Final = frozenset({0, 5})

BY_ITSELF: Final = "failed"
"""Counts a test that failed without a metric that failed it."""

TITLE_WORDS: Final[Mapping[Outcome, str]] = {
    **COUNTED_WORDS,
    **UNCHECKED_WORDS,
    Outcome.REGRESSED: "got worse",
}
"""Counts the tests of an outcome in this order."""


def run_markdown(  # noqa: PLR0913  a run, and how its place names things
    results: Results,
    found: Sequence[JudgedCall],
    sources: Sources,
    *,
    baseline_file: str,
    pending: str,
    room: int,
    changed: Sequence[BaselineChange] = (),
) -> str:
    """Say what came of a run in at most *room* bytes: failing tests, the others folded.

    *found* are its calls, *pending* is the file that can be accepted, empty if there
    is none, and *changed* is what a pull request changes in the baselines.
    """
    failing, others = _parted(found)
    head = [f"### {title(results)}", "", *_notes(results.head)]
    hardware = results.head.hardware
    tail = [
        *_accept(found, pending, baseline_file),
        *_details(found, at_root(hardware), strict=results.head.strict),
    ]
    names = _short_names(results)
    # At most half of the room: the table must have some however many failures are
    # explained. Others get what the table leaves.
    tail = fitting(tail, (room - sum(map(size, head))) // 2)
    left = room - sum(map(size, [*head, *tail])) - RESERVED_CHARS
    table = list(_table(failing, names, sources, left))
    stored = list(_stored(changed, left - sum(map(size, table))))
    rest = _folded(others, names, left - sum(map(size, [*table, *stored])))
    text = "\n".join([*head, *table, *tail, *stored, *rest, ""])
    # In bytes, as the limit of a summary is: beyond it GitHub drops all of the text.
    return text.encode("utf-8", "replace")[: max(room, 0)].decode("utf-8", "ignore")


def title(results: Results) -> str:
    """Name how many tests failed and how, else what came of all of them."""
    hardware, status = results.head.hardware, results.head.exit_status
    where = f" ({escaped(hardware.in_words)})" if hardware else ""
    records = results.tests.values()
    failing = [record for record in records if record.ending.fails]
    listed = bool(failing) and status in FINISHED_EXITS
    ended = "" if listed or status in GREEN_EXITS else f", pytest exited with {status}"
    if not results.tests:
        return f"gpuperf: no {'result' if ended else 'test was measured'}{ended}"
    return f"gpuperf: {_counts(failing or records)}{where}{ended}"


def _counts(records: Iterable[Record]) -> str:
    """Write ``2 tests got worse, 1 over limit, 1 failed otherwise``."""
    counts = Counter(map(_word, records))
    known = [word for word in (*TITLE_WORDS.values(), BY_ITSELF) if counts[word]]
    first, *rest = dict.fromkeys([*known, *counts])
    said = [f"{counted(counts[first], 'test')} {first}"]
    for word in rest:
        otherwise = " otherwise" if word == BY_ITSELF else ""
        said.append(f"{counts[word]} {word}{otherwise}")
    return ", ".join(said)


def _word(record: Record) -> str:
    """Return what a test is counted as."""
    outcome = record.outcome
    if record.ending.fails:
        if outcome is None or outcome in PASSABLE:
            return BY_ITSELF
    elif record.ending is not Ending.PASSED:
        return str(record.ending.value)
    return TITLE_WORDS[outcome] if outcome else str(record.ending.value)


def _notes(head: Head) -> Iterator[str]:
    lost = len(head.unreported)
    said = [f"**{lost} without a result**"] if lost else []
    for note in (*said, *(code(note, LONGEST_LIST) for note in head.notes)):
        yield from (note, "")


ByTest = Mapping[str, Sequence[JudgedCall]]
"""The calls of each test by its node id."""


def _parted(found: Sequence[JudgedCall]) -> tuple[ByTest, ByTest]:
    """Return what is said of tests that fail or would have, and of the others."""
    failing: dict[str, list[JudgedCall]] = {}
    others: dict[str, list[JudgedCall]] = {}
    for call in found:
        accused = call.record.ending.accuses
        (failing if accused else others).setdefault(call.test, []).append(call)
    return failing, others


def _short_names(results: Results) -> Mapping[str, str]:
    """Return the name of each test without its file, if no other test has the same."""
    names = {test: test.partition("::")[2] or test for test in results.tests}
    counts = Counter(names.values())
    return {test: name if counts[name] == 1 else test for test, name in names.items()}


def _table(
    failing: ByTest, names: Mapping[str, str], sources: Sources, room: int
) -> Iterator[str]:
    """Yield a row for tests that fail alike at one line, worst first."""
    alike: dict[tuple[str, str], list[str]] = {}
    for test, said in failing.items():
        cells = _what(test, said), _where(said, sources)
        alike.setdefault(cells, []).append(code(names[test], LONGEST_TEST))
    rows = ([_names(tests), *cells] for cells, tests in alike.items())
    if failing:
        yield from _fitting_table(FAILED_HEADER, rows, len(alike), room)


def _names(tests: Sequence[str]) -> str:
    """Put the tests that one line fails alike into a cell, and count those left out."""
    left = len(tests) - MOST_IN_A_CELL
    more = [f"and {left} more"] if left > 0 else []
    return "<br>".join([*tests[:MOST_IN_A_CELL], *more])


def _folded(others: ByTest, names: Mapping[str, str], room: int) -> Iterator[str]:
    """Yield what came of the other tests, in a block that a reader opens."""
    if not others:
        return
    counts = _counts(said[0].record for said in others.values())
    rows = (
        [code(names[test], LONGEST_TEST), _what(test, said)]
        for test, said in others.items()
    )
    yield from _folded_table(counts, OTHERS_HEADER, rows, len(others), room)


def _stored(changed: Sequence[BaselineChange], room: int) -> Iterator[str]:
    """Yield what a pull request changes in the baselines, as its reviewer reads it."""
    if not changed:
        return
    cells = ((row, refresh_cells(row)) for row in changed)
    rows = (
        [code(row.test, LONGEST_TEST), escaped(title_of(row.metric)), *texts[:3]]
        for row, texts in cells
    )
    said = f"Baselines: this pull request changes {counted(len(changed), 'number')}"
    yield from _folded_table(said, STORED_HEADER, rows, len(changed), room)


def _folded_table(
    summary: str,
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    count: int,
    room: int,
) -> Iterator[str]:
    open_, close = f"<details><summary>{summary}</summary>", "</details>"
    room -= size(open_) + size(close)
    yield from (open_, "")
    yield from _fitting_table(names, rows, count, room)
    yield close


def _fitting_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], count: int, room: int
) -> Iterator[str]:
    """Yield a table of as many of *count* rows as fit, and how many do not."""
    header = (markdown_row(names), markdown_row([":--"] * len(names)))
    shown = fitting(map(markdown_row, rows), room - sum(map(size, header)))
    yield from (*header, *shown, "")
    if len(shown) < count:
        left = count - len(shown)
        yield f"{left} more left out, none is worse: see `.gpuperf/results.json`"
        yield ""


def _what(test: str, said: Sequence[JudgedCall]) -> str:
    """Say in one cell what came of the *test*, of the worst of its metrics first."""
    first, record = said[0], said[0].record
    if first.verdict is None or not first.is_telling:
        ended = "" if record.ending.accuses else f"{record.ending.value}: "
        return ended + code(record.headline) if record.headline else _word(record)
    parts = [
        f"{_call(call.key, test)}{escaped(text)}"
        for call in said
        for text in call.sentences
    ]
    return f"{_prefix(first)}{join_fitting(parts, LONGEST_CELL, '; ')}"


def _prefix(call: JudgedCall) -> str:
    if call.record.ending is Ending.XFAILED and call.record.outcome is not None:
        return "expected to fail: "
    return f"{WOULD_HAVE_FAILED}: " if call.is_warned else ""


def _call(name: str, test: str) -> str:
    """Name a call of the *test* that has a name of its own."""
    own = name.removeprefix(test).removeprefix("#")
    return f"{code(own, LONGEST_TEST)}: " if name != test and own else ""


def _where(said: Sequence[JudgedCall], sources: Sources) -> str:
    """Link the line to blame, else that of the test."""
    blaming = (call for call in said if call.is_accused and sources.line_of(call))
    file, line = sources.place(next(blaming, said[0]))
    if not file:
        return ""
    label = code(f"{file}:{line}", LONGEST_PLACE)
    address = sources.address(sources.path(file), line)
    return f'<a href="{escape(address)}">{label}</a>' if address else label


def _details(
    found: Sequence[JudgedCall], invocation: Invocation, *, strict: bool
) -> Iterator[str]:
    """Explain the worst failures, each as a block on one line of the list."""
    failing = [call for call in found if call.is_accused][:MOST_EXAMINED]
    shared = SharedCauses()
    for call in failing:
        if call.verdict is not None:
            shared.add(call.key, call.verdict)
    explained = _explained(failing, shared, invocation, strict=strict)
    for test, lines in islice(explained, MOST_DETAILS):
        block = preformatted(line[:LONGEST_LIST] for line in lines[:MOST_DETAIL_LINES])
        summary = f"<details><summary>Why: {code(test)}</summary>"
        yield f"{summary}\n\n{block}\n\n</details>\n"


def _explained(
    failing: Iterable[JudgedCall],
    shared: SharedCauses,
    invocation: Invocation,
    *,
    strict: bool,
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield why each test failed, but for those that fail as one above does."""
    for call in failing:
        if call.verdict is None:
            yield call.key, call.sentences
            continue
        why = Failure(call.verdict, call.key, invocation, strict=strict, shared=shared)
        if not why.is_shown_elsewhere:
            yield call.key, terminal(why.blocks(screen_room()))


def _accept(
    found: Sequence[JudgedCall], pending: str, baseline_file: str
) -> Iterator[str]:
    worse = [c for c in found if c.is_accused and c.outcome in ACCEPTABLE]
    if pending and worse:
        yield (
            "Intended? Download the artifact of this run into `.gpuperf`, type this, "
            "review the change and commit it:"
        )
        yield ""
        folder = baseline_file.rpartition("/")[0]
        yield preformatted([_command(worse, pending, folder)])
        yield ""


def _command(worse: Sequence[JudgedCall], pending: str, folder: str) -> str:
    """Name the lines that alone made all tests worse, else the tests."""
    calls = [call.verdict for call in worse if call.verdict]
    places = {only_line(call): None for call in calls}
    is_few = len(places) < len(calls)
    if is_few and None not in places and folder in {"", BASELINES}:
        return accept_lines_command([place for place in places if place])
    named = [call.key for call in worse] if len(worse) <= MOST_DROPPED_NAMED else []
    return accept_command(pending, folder, named)
