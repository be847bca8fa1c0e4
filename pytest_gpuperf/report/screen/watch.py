"""What a suite does on a GPU or the simulated one: one table."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Final

from ...judge.ratchet import STORED_LEAKS
from ...judge.ratchet import STORED_LINES
from ...judge.ratchet import Counts
from ...judge.watch import LeftTensors
from ...judge.watch import LineUse
from ...judge.watch import Objection
from ...judge.watch import SuiteLine
from ...judge.watch import WatchedTest
from ...judge.watch import suite_lines
from ...judge.watch import tally
from ...judge.wording import counted
from ...model.environment import DeviceKind
from ...model.finding import Finding
from ...model.finding import FindingKind
from ...model.finding import Location
from ...model.metrics import PAGEABLE_COPIES
from ...model.metrics import PEAK_ALLOCATED
from ..numbers import format_value
from ..remedies import KIND_REMEDIES
from ..remedies import garbage_remedy
from ..remedies import remedy_of
from ..table import align
from ..wrapping import REASON_INDENT
from ..wrapping import labelled
from ..wrapping import text_width
from ..wrapping import wrapped


GPU_TEXTS: Final = {
    DeviceKind.PRETEND: "the simulated GPU",
    DeviceKind.CUDA: "the GPU",
}

ENDED: Final = {
    DeviceKind.PRETEND: "on the simulated GPU",
    DeviceKind.CUDA: "while they were watched",
}

MOST_PEAKS: Final = 5
MOST_BLAMED: Final = 5
"""Lines shown of one test that fails a gate."""


def watch_lines(  # noqa: PLR0913  what is shown, and of what
    records: Sequence[WatchedTest],
    objections: Sequence[Objection],
    *,
    kind: DeviceKind,
    stored: Mapping[str, Counts] | None = None,
    notes: Sequence[str] = (),
    most: int | None = 10,
) -> tuple[str, ...]:
    """Return the answer in a line, then the worst lines, leaks and peaks.

    *most* limits each table; ``None`` shows all. *notes* come last.
    """
    return (
        *_answer(records, kind),
        *_worst(suite_lines(records), most),
        *_leaks(records, most),
        *_garbage(records, most),
        *_peaks(records, MOST_PEAKS if most else None),
        *_own_lines(records),
        *_endings(records, kind, most),
        *_verdict(objections, stored),
        *notes,
    )


def _answer(records: Sequence[WatchedTest], kind: DeviceKind) -> Iterator[str]:
    found = tally(records)
    tests = counted(found["tests"], "test")
    if not found["used"]:
        yield f"none of {tests} used {GPU_TEXTS[kind]}"
        return
    lines = suite_lines(records)
    waiting = [line for line in lines if line.use.waits]
    waits = sum(line.use.waits for line in waiting)
    leaking = counted(found["leaking"], "test")
    yield from wrapped(
        f"{found['used']} of {tests} used it; {counted(waits, 'wait')} on "
        f"{counted(len(waiting), 'line')}; {leaking} left device memory to the next"
    )


def _worst(lines: Sequence[SuiteLine], most: int | None) -> Iterator[str]:
    if not lines:
        return
    shown = lines[:most]
    yield ""
    yield "worst lines: most waits in one test, waits and tests in all"
    head = ("most", "waits", "tests", "pageable", "bytes", "line")
    rows = [head, *(_row(line) for line in shown)]
    texts = align(rows, frozenset({5}))
    yield texts[0]
    for line, text in zip(shown, texts[1:], strict=True):
        yield text
        yield from _source(line.use)
    if len(lines) > len(shown):
        yield f"{counted(len(lines) - len(shown), 'more line')}: -v shows all"


def _row(line: SuiteLine) -> tuple[str, ...]:
    use = line.use
    return (
        str(line.most_waits),
        str(use.waits),
        str(line.tests),
        str(use.pageable),
        _bytes(use.nbytes),
        str(use.place),
    )


def _source(use: LineUse) -> Iterator[str]:
    if use.place.source:
        text = use.place.source
        room = text_width() - REASON_INDENT
        yield from labelled(
            "source", text if len(text) <= room else f"{text[: room - 3]}..."
        )
    fix = fix_of(use)
    if fix:
        yield from labelled("fix", fix)


def fix_of(use: LineUse) -> str:
    """Return what to do about a line, by the table that all reports share."""
    place = use.place
    remedy = remedy_of(
        Finding(
            kind=FindingKind.SYNC if use.waits else FindingKind.TRANSFER,
            op=use.op,
            api=None,
            per_step=1,
            blocked_ms=0.0,
            location=Location(
                file=place.file, line=place.line, function=place.function
            ),
            reason=use.reason,
            source=place.source,
            metrics=() if use.waits else (PAGEABLE_COPIES.name,),
        )
    )
    return "" if remedy is None else remedy.do


def _leaks(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    leaking = sorted(
        (record for record in records if record.left),
        key=lambda r: (-sum(left.nbytes for left in r.left), r.test),
    )
    if not leaking:
        return
    yield ""
    yield "tests that leave device memory to the next:"
    for record in leaking[:most]:
        nbytes = sum(left.nbytes for left in record.left)
        tensors = counted(record.left_tensors, "tensor")
        yield f"  {record.test}: {tensors}, {_bytes(nbytes)}"
        yield from _left(record.left)
    if most is not None and len(leaking) > most:
        yield f"{counted(len(leaking) - most, 'more test')}: -v shows all"


def _left(left: Sequence[LeftTensors]) -> Iterator[str]:
    # The youngest comes first: the rest is mostly what it was computed from.
    first = left[0]
    yield f"  --> {first.place}"
    yield from labelled("source", first.place.source)
    yield from labelled("kept by", first.kept_by)
    yield from labelled("fix", KIND_REMEDIES[FindingKind.LEFT].do)


def _garbage(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    """Show the tests whose memory only the garbage collector frees, the most first."""
    sizes = {record: sum(g.nbytes for g in record.garbage) for record in records}
    found = sorted((r for r in sizes if sizes[r]), key=lambda r: (-sizes[r], r.test))
    if not found:
        return
    yield ""
    yield "tests with device memory that only Python's garbage collector frees:"
    for record in found[:most]:
        first = record.garbage[0]
        reason = f"in a cycle of {first.kept_by}" if first.kept_by else ""
        yield f"  {record.test}: {_bytes(sizes[record])}"
        yield f"  --> {first.place}"
        yield from labelled("source", first.place.source)
        yield from labelled("kept", reason)
        yield from labelled("fix", garbage_remedy(reason).do)
    if most is not None and len(found) > most:
        yield f"{counted(len(found) - most, 'more test')}: -v shows all"


def _peaks(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    used = sorted(
        (record for record in records if record.peak_bytes),
        key=lambda r: (-r.peak_bytes, r.test),
    )
    if not used:
        return
    yield ""
    yield "peak memory by test:"
    rows = [(f"  {_bytes(r.peak_bytes)}", r.test) for r in used[:most]]
    yield from align(rows, frozenset())


def _own_lines(records: Iterable[WatchedTest]) -> Iterator[str]:
    """Say what the tests' own lines do: a test must read what it asserts."""
    total = sum(use.waits for record in records for use in record.lines)
    own = total - sum(record.waits for record in records)
    if own:
        yield ""
        yield f"{counted(own, 'wait')} on lines of the tests themselves: not judged"


def _endings(
    records: Sequence[WatchedTest], kind: DeviceKind, most: int | None
) -> Iterator[str]:
    found = tally(records)
    gained, failed = found["gained"], found["gained_failed"]
    if gained:
        yield ""
        yield from wrapped(
            f"{counted(gained, 'test')} ran only because of the simulated GPU"
            + (f"; {failed} of them failed there, and fail no run:" if failed else "")
        )
        yield from _differing((r for r in records if r.gained), most)
    if found["differs"]:
        yield ""
        yield from wrapped(
            f"{counted(found['differs'], 'test')} ended otherwise {ENDED[kind]}; "
            "reported is how they end without it:"
        )
        yield from _differing((r for r in records if not r.gained), most)
    if found["unjudged"]:
        yield ""
        tests = counted(found["unjudged"], "test")
        yield f"{tests} used what only a GPU can judge"


def _differing(records: Iterable[WatchedTest], most: int | None) -> Iterator[str]:
    differing = [record for record in records if record.differs]
    for record in differing[:most]:
        yield from wrapped(f"{record.test}: {record.differs}", first="  ", rest=" " * 4)
    if most is not None and len(differing) > most:
        yield f"  and {counted(len(differing) - most, 'more test')}: -v shows all"


def _verdict(
    objections: Sequence[Objection], stored: Mapping[str, Counts] | None
) -> Iterator[str]:
    if objections:
        yield ""
        yield f"{counted(len(objections), 'count')} failed:"
        for objection in objections:
            yield from wrapped(f"{objection.test}: {objection.what}", first="  ")
            for use in objection.lines[:MOST_BLAMED]:
                yield f"  --> {use.place}"
                yield from _source(use)
            if objection.left:
                yield from _left(objection.left)
    elif stored is not None:
        lines = counted(len(stored[STORED_LINES]), "line")
        leaks = counted(len(stored[STORED_LEAKS]), "leaking test")
        yield ""
        yield f"nothing rose above the baseline of {lines} and {leaks}"


def _bytes(nbytes: int) -> str:
    return format_value(PEAK_ALLOCATED, nbytes)
