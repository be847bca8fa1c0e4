"""What a suite does on a GPU or the simulated one: its worst lines, leaks and peaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ...judge.readings import WOULD_HAVE_FAILED
from ...judge.watch import UNKNOWN, Objection, SuiteLine, suite_lines, tally
from ...model.baseline import Entry
from ...model.finding import Finding, FindingKind, WatchedTest, syncs_in
from ...model.metrics import counted
from ..document import Block, Field, Heading, Place, Table, Text
from ..numbers import size_in_words
from .findings import fix_fields
from .summary import NO_VALUE, filled


MOST_PEAKS: Final = 5
MOST_BLAMED: Final = 5
"""Lines shown of one test that fails a gate."""


def watch_blocks(  # noqa: PLR0913  what is shown, and of what
    records: Sequence[WatchedTest],
    objections: Sequence[Objection],
    *,
    stored: Mapping[str, Entry] | None = None,
    notes: Sequence[str] = (),
    most: int | None = 10,
    warns: bool = False,
) -> Iterator[Block]:
    """Yield the answer in a line, then the worst lines, leaks and peaks.

    *most* limits each list; ``None`` shows all. *notes* come last. Where
    the run only *warns*, no objection fails it.
    """
    found, lines = tally(records), suite_lines(records)
    yield Text(_answer(found, lines))
    yield from _section("worst lines:", _worst(lines, most))
    kept = {record.test: record.left for record in records}
    yield from _section("tests that leak GPU memory:", _kept(kept, most))
    kept = {record.test: record.garbage for record in records}
    title = "tests with device memory that only Python's garbage collector frees:"
    yield from _section(title, _kept(kept, most))
    peaks = _peaks(records, MOST_PEAKS if most else None)
    yield from _section("peak memory by test:", peaks)
    yield from _section("", _unchecked(records, found, most))
    yield from _section("", _verdict(objections, stored, warns=warns))
    yield from map(Text, notes)


def _section(title: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Set *blocks*, if there are any, apart below their *title*."""
    shown = [*blocks]
    if shown:
        yield Heading("")
        yield from (Heading(title), *shown) if title else shown


def _answer(found: Mapping[str, int], lines: Sequence[SuiteLine]) -> str:
    tests = counted(found["tests"], "test")
    if not found["used"]:
        return f"none of {tests} used the simulated GPU"
    waiting = [line.syncs for line in lines if line.syncs]
    return (
        f"{found['used']} of {tests} used it; {counted(sum(waiting), 'sync')} on "
        f"{counted(len(waiting), 'line')}; {counted(found['leaking'], 'test')} leaked GPU memory"
    )


def _worst(lines: Sequence[SuiteLine], most: int | None) -> Iterator[Block]:
    for line in lines[:most]:
        yield from _line(line, ", ".join(_in_words(line)))
    yield from _more(len(lines), most, "more line")


def _line(line: SuiteLine, text: str = "") -> Iterator[Block]:
    others = (f for f in line.others if f.kind is not FindingKind.TRANSFER)
    yield Place(str(line.place), line.first, text)
    yield from fix_fields(line.first, *others)


def _in_words(line: SuiteLine) -> Iterator[str]:
    """Say what a line did in all tests, and in the one with most of it."""
    if line.syncs:
        most = "" if line.tests == 1 else f", {line.most_syncs} of them in one"
        yield f"{counted(line.syncs, 'sync')} in {counted(line.tests, 'test')}{most}"
    if line.pageable:
        copies = "unpinned copy" if line.pageable == 1 else "unpinned copies"
        yield f"{line.pageable} {copies} of {size_in_words(line.nbytes)}"


def _kept(kept: Mapping[str, Sequence[Finding]], most: int | None) -> Iterator[Block]:
    """Show tests and what they keep, the most bytes first."""
    sizes = {test: sum(f.held_bytes for f in found) for test, found in kept.items()}
    ordered = sorted((t for t in kept if sizes[t]), key=lambda t: (-sizes[t], t))
    for test in ordered[:most]:
        tensors = sum(f.per_step for f in kept[test] if f.kind is FindingKind.LEFT)
        count = f"{counted(tensors, 'tensor')}, " if tensors else ""
        yield Text(f"{test}: {count}{size_in_words(sizes[test])}", "  ")
        yield from _first(kept[test])
    yield from _more(len(ordered), most, "more test")


def _first(kept: Sequence[Finding]) -> Iterator[Block]:
    # The youngest comes first: the rest is mostly what it was computed from.
    yield Place(str(kept[0].location or UNKNOWN), kept[0], "")
    yield from fix_fields(kept[0])


def _more(number: int, most: int | None, noun: str) -> Iterator[Block]:
    if most is not None and number > most:
        yield Text(f"{counted(number - most, noun)}: -v shows all")


PEAK_HEADER: Final = ("memory", "cuBLAS", "test")


def _peaks(records: Iterable[WatchedTest], most: int | None) -> Iterator[Block]:
    rows = [
        (
            size_in_words(r.peak_bytes - r.workspace_bytes),
            size_in_words(r.workspace_bytes) if r.workspace_bytes else NO_VALUE,
            r.test,
        )
        for r in sorted(
            records, key=lambda r: (r.workspace_bytes - r.peak_bytes, r.test)
        )
        if r.peak_bytes
    ]
    if rows:
        header, *shown = filled([PEAK_HEADER, *rows[:most]])
        yield Table(header, shown)


def _unchecked(
    records: Sequence[WatchedTest], found: Mapping[str, int], most: int | None
) -> Iterator[Block]:
    """Say what nobody judges: a test must read what it asserts."""
    own = sum(syncs_in(record.lines) - record.syncs for record in records)
    if own:
        syncs = counted(own, "sync")
        yield Text(f"{syncs} on lines of the tests themselves: not checked")
    if found["unchecked_ops"]:
        tests = counted(found["unchecked_ops"], "test")
        yield Text(f"{tests} used what only a GPU can judge")
    unchecked = [record for record in records if record.unchecked]
    if unchecked:
        tests = counted(len(unchecked), "test")
        how = "plain pytest says how each ends without the simulated GPU"
        yield Text(f"{tests} not checked: {how}")
    for record in unchecked[:most]:
        yield Text(f"{record.test}: {record.unchecked}", "  ")
    yield from _more(len(unchecked), most, "more test")


def _verdict(
    objections: Sequence[Objection],
    stored: Mapping[str, Entry] | None,
    *,
    warns: bool,
) -> Iterator[Block]:
    if objections:
        failed = WOULD_HAVE_FAILED if warns else "failed"
        yield Heading(f"{counted(len(objections), 'count')} {failed}:")
    for objection in objections:
        yield Text(f"{objection.test}: {objection.what}", "  ")
        for line in objection.lines[:MOST_BLAMED]:
            yield from _line(line)
        if objection.left:
            yield from _first(objection.left)
    if stored and objections:
        accept = "pytest --gpuperf-watch --gpuperf-update=all"
        yield Field("accept", accept, is_copied=True)
    elif stored:
        tests = counted(len(stored), "test")
        yield Text(f"nothing rose above the baseline of {tests}")
