"""What a suite does on a GPU or the simulated one: one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from ...judge.readings import WOULD_HAVE_FAILED
from ...judge.watch import UNKNOWN, Objection, SuiteLine, suite_lines, tally
from ...model.baseline import Entry
from ...model.finding import Finding, FindingKind, WatchedTest, syncs_in
from ...model.metrics import PEAK_ALLOCATED, counted
from ..document import REASON_INDENT, align, labelled, text_width, uncut, wrapped
from ..numbers import format_value
from ..remedies import remedy_of
from .summary import NO_VALUE, filled


MOST_PEAKS: Final = 5
MOST_BLAMED: Final = 5
"""Lines shown of one test that fails a gate."""


def watch_lines(  # noqa: PLR0913  what is shown, and of what
    records: Sequence[WatchedTest],
    objections: Sequence[Objection],
    *,
    stored: Mapping[str, Entry] | None = None,
    notes: Sequence[str] = (),
    most: int | None = 10,
    warns: bool = False,
) -> tuple[str, ...]:
    """Return the answer in a line, then the worst lines, leaks and peaks.

    *most* limits each table; ``None`` shows all. *notes* come last. Where
    the run only *warns*, no objection fails it.
    """
    return (
        *_answer(records),
        *_worst(suite_lines(records), most),
        *_leaks(records, most),
        *_garbage(records, most),
        *_peaks(records, MOST_PEAKS if most else None),
        *_own_lines(records),
        *_endings(records, most),
        *_verdict(objections, stored, warns=warns),
        *notes,
    )


def _answer(records: Sequence[WatchedTest]) -> Iterator[str]:
    found = tally(records)
    tests = counted(found["tests"], "test")
    if not found["used"]:
        yield f"none of {tests} used the simulated GPU"
        return
    lines = suite_lines(records)
    waiting = [line for line in lines if line.syncs]
    syncs = sum(line.syncs for line in waiting)
    leaking = counted(found["leaking"], "test")
    yield from wrapped(
        f"{found['used']} of {tests} used it; {counted(syncs, 'sync')} on "
        f"{counted(len(waiting), 'line')}; {leaking} leaked GPU memory"
    )


def _worst(lines: Sequence[SuiteLine], most: int | None) -> Iterator[str]:
    if not lines:
        return
    shown = lines[:most]
    yield ""
    yield "worst lines: most syncs in one test, syncs and tests in all"
    head = ("most", "syncs", "tests", "pageable", "bytes", "line")
    rows = [head, *(_row(line) for line in shown)]
    texts = align(rows, frozenset({5}))
    yield texts[0]
    for line, text in zip(shown, texts[1:], strict=True):
        yield text
        yield from _source(line)
    yield from _more(len(lines), most, "more line")


def _row(line: SuiteLine) -> tuple[str, ...]:
    return (
        str(line.most_syncs),
        str(line.syncs),
        str(line.tests),
        str(line.pageable),
        _bytes(line.nbytes),
        str(line.place),
    )


def _source(line: SuiteLine) -> Iterator[str]:
    text = line.first.source
    if text:
        room = text_width() - REASON_INDENT
        yield from labelled(
            "source", text if len(text) <= room else f"{text[: room - 3]}..."
        )
    others = (f for f in line.others if f.kind is not FindingKind.TRANSFER)
    yield from chain.from_iterable(dict.fromkeys(map(_fix, (line.first, *others))))


def _leaks(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    found = [
        (
            r.test,
            r.left,
            f"{counted(r.left_tensors, 'tensor')}, {_bytes(_held(r.left))}",
        )
        for r in records
        if r.left
    ]
    yield from _kept("tests that leak GPU memory:", found, most)


def _garbage(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    found = [
        (r.test, r.garbage, _bytes(_held(r.garbage)))
        for r in records
        if _held(r.garbage)
    ]
    title = "tests with device memory that only Python's garbage collector frees:"
    yield from _kept(title, found, most)


def _kept(
    title: str, found: Iterable[tuple[str, Sequence[Finding], str]], most: int | None
) -> Iterator[str]:
    """Show tests, what they keep, and how much it is in words: the most bytes first."""
    ordered = sorted(found, key=lambda row: (-_held(row[1]), row[0]))
    if not ordered:
        return
    yield ""
    yield title
    for test, kept, amount in ordered[:most]:
        yield f"  {test}: {amount}"
        yield from _first(kept)
    yield from _more(len(ordered), most, "more test")


def _more(number: int, most: int | None, noun: str) -> Iterator[str]:
    if most is not None and number > most:
        yield f"{counted(number - most, noun)}: -v shows all"


def _held(found: Iterable[Finding]) -> int:
    return sum(each.held_bytes for each in found)


KEPT_LABELS: Final = {FindingKind.LEFT: "kept by", FindingKind.GARBAGE: "kept"}


def _first(kept: Sequence[Finding]) -> Iterator[str]:
    # The youngest comes first: the rest is mostly what it was computed from.
    first = kept[0]
    yield f"  --> {first.location or UNKNOWN}"
    yield from labelled("source", first.source)
    yield from labelled(KEPT_LABELS[first.kind], first.reason)
    yield from _fix(first)


def _fix(found: Finding) -> tuple[str, ...]:
    remedy = remedy_of(found)
    return labelled("fix", remedy.do if remedy else "")


PEAK_HEADER: Final = ("memory", "cuBLAS", "test")


def _peaks(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    used = sorted(
        (record for record in records if record.peak_bytes),
        key=lambda r: (r.workspace_bytes - r.peak_bytes, r.test),
    )
    if not used:
        return
    yield ""
    yield "peak memory by test:"
    rows = [
        (
            f"  {_bytes(r.peak_bytes - r.workspace_bytes)}",
            _bytes(r.workspace_bytes) if r.workspace_bytes else NO_VALUE,
            r.test,
        )
        for r in used[:most]
    ]
    yield from align(filled([PEAK_HEADER, *rows]), frozenset())


def _own_lines(records: Iterable[WatchedTest]) -> Iterator[str]:
    """Say what the tests' own lines do: a test must read what it asserts."""
    own = sum(syncs_in(record.lines) - record.syncs for record in records)
    if own:
        yield ""
        yield f"{counted(own, 'sync')} on lines of the tests themselves: not checked"


def _endings(records: Sequence[WatchedTest], most: int | None) -> Iterator[str]:
    found = tally(records)
    if found["unchecked"]:
        yield ""
        yield from wrapped(
            f"{counted(found['unchecked'], 'test')} not checked: plain pytest says how "
            "each ends without the simulated GPU"
        )
        yield from _unchecked(records, most)
    if found["unchecked_ops"]:
        yield ""
        tests = counted(found["unchecked_ops"], "test")
        yield f"{tests} used what only a GPU can judge"


def _unchecked(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    found = [record for record in records if record.unchecked]
    for record in found[:most]:
        said = f"{record.test}: {record.unchecked}"
        yield from wrapped(said, first="  ", rest=" " * 4)
    yield from _more(len(found), most, "more test")


def _verdict(
    objections: Sequence[Objection],
    stored: Mapping[str, Entry] | None,
    *,
    warns: bool,
) -> Iterator[str]:
    if objections or stored:
        yield ""
    if objections:
        failed = WOULD_HAVE_FAILED if warns else "failed"
        yield f"{counted(len(objections), 'count')} {failed}:"
        for objection in objections:
            yield from wrapped(f"{objection.test}: {objection.what}", first="  ")
            for line in objection.lines[:MOST_BLAMED]:
                yield f"  --> {line.place}"
                yield from _source(line)
            if objection.left:
                yield from _first(objection.left)
        if stored:
            yield from uncut("accept", "pytest --gpuperf-watch --gpuperf-update=all")
    elif stored:
        yield f"nothing rose above the baseline of {counted(len(stored), 'test')}"


def _bytes(nbytes: int) -> str:
    return format_value(PEAK_ALLOCATED, nbytes)
