"""Causes and their places, and lines that run other operations, as blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import PurePath
from typing import Final

from ...model.finding import (
    CALLED,
    STORED,
    Finding,
    FindingKind,
    LineChange,
    Location,
    Phase,
)
from ...model.metrics import STEP_MS, SYNCS, MetricKind, counted
from ...model.verdict import Outcome, TestVerdict
from ..document import REASON_INDENT, Block, Field, Place, below, terminal, text_width
from ..numbers import format_value, join_fitting, metric_named, size_in_words
from ..remedies import remedy_of


MOST_FINDINGS: Final = 8
MOST_INCONCLUSIVE: Final = 2
MOST_PEAK_LINES: Final = 12
MOST_PLACES: Final = 60

LEAST_CHANGED_PERCENT: Final = 5.0
LEAST_UNCHANGED_PERCENT: Final = 20.0
"""Share of a step that a line takes which is named for it, changed or not."""

MOST_UNCHANGED: Final = 2

KINDS: Final = {
    FindingKind.INCONCLUSIVE: "may wait: ",
    FindingKind.MEMORY: "in use at the peak: ",
    FindingKind.PEAK: "most memory is in use here: ",
}
"""What a cause is, if it is none of syncs, copies and operations."""

EVENTS: Final = {
    FindingKind.SYNC: "the CPU waits here for the GPU",
    FindingKind.COPY: "the CPU waits here until the copy is done",
    FindingKind.INCONCLUSIVE: "the CPU may wait here for the GPU",
    FindingKind.TRANSFER: "a copy between CPU and GPU",
}
"""What happens, if no reason is known."""

OUTSIDE_THE_STEP: Final = {
    FindingKind.MEMORY: "memory from before the step",
    FindingKind.PEAK: "when the step begins",
}
"""Replaces the line of a finding that is in no phase."""

PACKAGES_FOLDER: Final = "-packages/"
"""The path of an installed file is shown from behind this on."""


def finding_blocks(
    findings: Sequence[Finding], failing: Collection[str], room: int
) -> list[Block]:
    """Name the causes of the *failing* metrics, worst first, in *room* lines if it can.

    What is new since the baseline comes first, and then what was there is only counted.
    If nothing is known to cause a time, syncs are named, but for those that the baseline
    has as well. What may wait comes apart, if syncs failed. Each metric that is counted
    has a line, whatever is cut.
    """
    counted = [m for m in failing if metric_named(m).kind is not MetricKind.NOISY]
    causes = _once(causes_of(findings, failing))
    blocks = _fitting(causes, room, MOST_FINDINGS, counted)
    if SYNCS.name not in failing:
        return blocks
    inconclusive = [f for f in findings if f.kind is FindingKind.INCONCLUSIVE]
    left = room - len(terminal(blocks))
    return [*blocks, *_fitting(inconclusive, left, MOST_INCONCLUSIVE)]


OF_A_LINE: Final = frozenset({*STORED, FindingKind.LEFT, FindingKind.GARBAGE})
"""Kinds of findings that are of a line, whichever test runs it."""

Cause = tuple[FindingKind, Location, bool]
"""A kind of event, its line, and whether it is new there."""


def cause_of(finding: Finding) -> Cause | None:
    """Return the cause that tests share which run the same line; ``None`` without one."""
    at = finding.location
    is_shared = at and finding.source and finding.kind in OF_A_LINE
    return (finding.kind, at, finding.is_new) if at and is_shared else None


class SharedCauses:
    """The tests that fail for each cause, of which the first that is shown names them all."""

    def __init__(self) -> None:
        self._tests: dict[Cause, dict[str, None]] = {}
        self._shown: dict[Cause, str] = {}

    def add(self, test: str, verdict: TestVerdict) -> None:
        """Note why *verdict* fails the *test*."""
        for finding in failing_findings(verdict):
            cause = cause_of(finding)
            if cause:
                self._tests.setdefault(cause, {})[test] = None

    def show(
        self, test: str, findings: Iterable[Finding], blocks: Iterable[Block]
    ) -> None:
        """Note the causes of *findings* that the *blocks* of their *test* show."""
        places = {block.name for block in blocks if isinstance(block, Place)}
        for finding in findings:
            cause = cause_of(finding)
            if cause and place_of(finding) in places:
                self._shown.setdefault(cause, test)

    def shown_at(self, finding: Finding) -> str:
        """Return the test that shows the cause of *finding*; nothing if none does yet."""
        cause = cause_of(finding)
        return self._shown.get(cause, "") if cause else ""

    def tests_of(self, findings: Iterable[Finding]) -> Sequence[str]:
        """Return the tests that fail for all *findings*, if each has a cause to share."""
        causes = [cause_of(finding) for finding in findings]
        found = [self._tests.get(cause, {}) if cause else {} for cause in causes]
        first, *others = found or [{}]
        return [test for test in first if all(test in tests for tests in others)]


def failing_findings(verdict: TestVerdict) -> Sequence[Finding]:
    """Return the findings that count in the failing metrics: the new or risen ones, if any."""
    failing = {v.metric for v in verdict.verdicts if v.outcome.fails}
    counting = [f for f in verdict.findings if not failing.isdisjoint(f.metrics)]
    return [f for f in counting if _differs(f)] or counting


UNWANTED: Final = (
    *(FindingKind.SYNC, FindingKind.COPY, FindingKind.BREAK, FindingKind.RECOMPILE),
    *(FindingKind.LEFT, FindingKind.GARBAGE),
)
"""Kinds of findings that nobody wants in a step, whatever is stored."""

MOST_FOUND: Final = 5


def found_blocks(verdicts: Sequence[TestVerdict]) -> Iterator[Block]:
    """Say what tests without a baseline do that nobody wants, once for a line of source."""
    tests: dict[tuple[str, Location | None], list[str]] = {}
    firsts: dict[tuple[str, Location | None], Finding] = {}
    for verdict in verdicts:
        for finding in (
            verdict.findings if verdict.outcome is Outcome.NO_BASELINE else ()
        ):
            key = finding.kind.value, finding.location
            if finding.kind in UNWANTED and finding.metrics:
                firsts.setdefault(key, finding)
                tests.setdefault(key, []).append(verdict.test)
    tried: set[str] = set()
    for key, finding in sorted(firsts.items(), key=lambda one: badness(one[1]))[
        :MOST_FOUND
    ]:
        names = [*dict.fromkeys(tests[key])]
        # Of each test the same line is at another place of the step.
        alike = replace(finding, operations=0) if len(names) > 1 else finding
        yield from _blocks(alike, tried=tried, places=())
        yield Field("tests", join_fitting(names, text_width() - REASON_INDENT))
    left = len(firsts) - MOST_FOUND
    if left > 0:
        yield Field("", f"and {left} more")


def causes_of(
    findings: Sequence[Finding], failing: Collection[str]
) -> Sequence[Finding]:
    """Return what counts in the *failing* metrics, or what may explain a time."""
    named = [f for f in findings if set(f.metrics).intersection(failing)]
    noisy = any(metric_named(m).kind is MetricKind.NOISY for m in failing)
    if not noisy:
        return named
    # A new sync is a likely reason for a slower step, although it counts in no time.
    is_known = any(f.kind is not FindingKind.IDLE for f in named)
    likely = _differs if is_known else _is_worth_a_line
    syncs = [f for f in findings if SYNCS.name in f.metrics and f not in named]
    return [*telling(named), *filter(likely, syncs)]


def telling(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Leave out slow lines that explain nothing: short ones, and all others if one changed."""
    times = [f for f in findings if f.kind is FindingKind.TIME]
    changed = [
        f for f in times if f.changed_since and f.percent >= LEAST_CHANGED_PERCENT
    ]
    slowest = sorted(times, key=badness)[:MOST_UNCHANGED]
    shown = changed or [f for f in slowest if f.percent >= LEAST_UNCHANGED_PERCENT]
    yield from (f for f in findings if f not in times or f in shown)


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out the operations of lines that are named already, for something worse."""
    others = [f for f in findings if f.kind is not FindingKind.WORK]
    located = {_line_of(f) for f in others if _differs(f)}
    work: dict[tuple[str, int] | None, Finding] = {}
    for finding in sorted(findings, key=badness):
        if finding.kind is FindingKind.WORK and _line_of(finding) not in located:
            work.setdefault(_line_of(finding), finding)
    return [*others, *work.values()]


def _line_of(finding: Finding) -> tuple[str, int] | None:
    at = finding.location
    return (at.file, at.line) if at else None


def _differs(finding: Finding) -> bool:
    return finding.is_new or finding.has_risen


def kinds_blocks(findings: Sequence[Finding], *kinds: FindingKind) -> list[Block]:
    """Show the worst of the *findings* of these *kinds*."""
    found = [finding for finding in findings if finding.kind in kinds]
    return _fitting(found, MOST_PEAK_LINES, MOST_FINDINGS)


def _fitting(
    findings: Sequence[Finding], room: int, most: int, metrics: Collection[str] = ()
) -> list[Block]:
    worst = sorted(findings, key=badness)
    if any(map(_differs, worst)):
        most = min(most, sum(map(_is_worth_a_line, worst)))
    # One finding at least, however little room there is, and one of each of *metrics*:
    # it is the likely cause.
    needed = _worst_of_each(worst, metrics)
    others = [place for place in range(len(worst)) if place not in needed]
    blocks = _shown(worst, needed)
    for more in range(1, most - len(needed) + 1):
        longer = _shown(worst, {*needed, *others[:more]})
        if len(terminal(longer)) > room:
            break
        blocks = longer
    return blocks


def _worst_of_each(worst: Sequence[Finding], metrics: Collection[str]) -> set[int]:
    """Return the place among the *worst* of the first, and of the first of each of *metrics*."""
    firsts = {0} if worst else set()
    for metric in metrics:
        of_metric = (n for n, found in enumerate(worst) if metric in found.metrics)
        firsts.update(islice(of_metric, 1))
    return firsts


OUTLIVING: Final = frozenset({FindingKind.LEFT, FindingKind.GARBAGE})
"""What is still there when the step is over."""


def badness(finding: Finding) -> tuple[float, ...]:
    """Sort key: new, risen, then the peak, in each step, longest, most bytes, most late.

    A wait at which the GPU has nothing to do anyway costs least; then what comes most often.
    """
    held = 0 if finding.kind in OUTLIVING else finding.held_bytes
    moved = finding.moved_bytes + held
    is_peak = finding.kind is FindingKind.PEAK
    longest = finding.blocked_ms or finding.percent
    some = finding.in_steps < finding.of_steps
    late = 0 if finding.is_idle else starts_late(finding)
    what_it_costs = (some, -longest, -moved, finding.is_idle, -late, -finding.per_step)
    return _age(finding), not is_peak, *what_it_costs


def _age(finding: Finding) -> int:
    """Rank new findings first, together with memory that is left; then other code."""
    if finding.is_new or finding.kind in OUTLIVING:
        return 0
    return 1 if finding.has_risen or finding.changed_since else 2


def _is_worth_a_line(finding: Finding) -> bool:
    """Whether it may be the cause: what was there before, as often, is not."""
    return finding.stored is None or _differs(finding)


def _shown(worst: Sequence[Finding], shown: Collection[int]) -> list[Block]:
    left = [found for n, found in enumerate(worst) if n not in shown]
    older = "older" if not any(map(_is_worth_a_line, left)) else "more"
    tried: set[str] = set()
    places: list[Location | None] = []
    blocks: list[Block] = []
    for finding in (worst[n] for n in sorted(shown)):
        blocks += _blocks(finding, tried=tried, places=places)
        places.append(finding.location)
    return [*blocks, *([Field("", f"and {len(left)} {older}")] if left else [])]


def _blocks(
    finding: Finding,
    *,
    tried: set[str],
    places: Sequence[Location | None],
) -> Iterator[Block]:
    """Show the place, its line of source with the cause marked, and what to do about it.

    *tried* are the remedies that were shown above it, to which this adds its own, and
    *places* the lines.
    """
    if finding.source and places[-1:] == [finding.location]:
        yield below(explained(finding))
    elif finding.source and finding.location and finding.location not in places:
        yield place_block(finding)
    else:
        yield place_block(replace(finding, source=""))
    if finding.innermost:
        yield Field("inside", str(short(finding.innermost)))
    remedy = remedy_of(finding)
    if remedy is not None and remedy.do not in tried:
        tried.add(remedy.do)
        yield Field("fix", remedy.do)


def fix_fields(*findings: Finding) -> Iterator[Block]:
    """Say why what outlives its step is kept, and once what to do about *findings*."""
    tried: set[str] = set()
    for finding in findings:
        if finding.kind in OUTLIVING:
            yield Field("kept", finding.reason)
        remedy = remedy_of(finding)
        if remedy is not None and remedy.do not in tried:
            tried.add(remedy.do)
            yield Field("fix", remedy.do)


def grows_by(nbytes: int, left: Sequence[Finding]) -> str:
    """Say by how much a step, and which line keeps most of that, the first of *left*."""
    place = left[0].location if left else None
    where = f", from line {place.line} of {PurePath(place.file).name}" if place else ""
    return f"grows by {size_in_words(nbytes, 3)} a step{where}"


def place_block(finding: Finding) -> Place:
    """Show its line, and say why; without a line also what it is."""
    if finding.source and finding.location:
        return Place(place_of(finding), finding, explained(finding))
    reason = f": {finding.reason}" if finding.reason else ""
    text = f"{KINDS.get(finding.kind, '')}{cause(finding)}{reason}"
    return Place(place_of(finding), replace(finding, source=""), text)


def place_of(finding: Finding) -> str:
    """Name its line, or what is known in place of it."""
    outside = None if finding.phase else OUTSIDE_THE_STEP.get(finding.kind)
    return str(short(finding.location) or outside or "line unknown")


def short(location: Location | None) -> Location | None:
    """Name an installed file from its package on."""
    if location is None:
        return None
    return replace(location, file=location.file.rpartition(PACKAGES_FOLDER)[2])


def explained(finding: Finding) -> str:
    """Say what happens on a line that is shown: not which operation, but why."""
    if finding.kind not in EVENTS:
        kind = KINDS.get(finding.kind, "")
        return ": ".join(filter(None, (f"{kind}{cause(finding)}", finding.reason)))
    new = "new: " if finding.is_new else ""
    may = KINDS.get(finding.kind, "") if finding.reason else ""
    parts = [f"{new}{may}{finding.reason or EVENTS[finding.kind]}"]
    if finding.per_step > 1 or finding.has_risen or finding.of_steps:
        before = f" ({finding.stored} before)" if finding.has_risen else ""
        parts.append(f"{finding.how_often}{before}")
    parts += (_phase(finding), *_amounts(finding), late_in_words(finding))
    return ", ".join(filter(None, parts))


def starts_late(finding: Finding) -> int:
    """Return how many operations of its step come after the first wait, if that is known."""
    after = finding.waits_after[:1] or (finding.operations,)
    return finding.operations - after[0]


def late_in_words(finding: Finding) -> str:
    """Say what a wait can cost: what it leaves the GPU without, in its order."""
    if not finding.operations or finding.in_steps < finding.of_steps:
        return ""
    if finding.is_idle:
        return "the GPU is idle already"
    late = starts_late(finding)
    if not late:
        return "the next step starts late"
    operations = counted(finding.operations, "operation")
    return f"{late} of {operations} start late"


def cause(finding: Finding) -> str:
    """Name what it is, how often and how large, and whether it is new."""
    if finding.is_new:
        return f"new: {_cause(finding)}"
    before = f", {finding.stored} before" if finding.has_risen else ""
    since = finding.changed_since
    changed = f", changed since {since}" if since else ""
    return f"{_cause(finding)}{before}{changed}"


def _cause(finding: Finding) -> str:
    say = CAUSES.get(finding.kind)
    if say is not None:
        return say(finding)
    if finding.held_bytes:
        phase = finding.phase.value if finding.phase else ""
        return ", ".join(filter(None, (finding.op, phase, _held(finding))))
    named = finding.op or finding.api or finding.kind.value
    if finding.op and finding.api:
        named = f"{finding.op} ({finding.api})"
    parts = (named, _phase(finding), finding.how_often, *_amounts(finding))
    return ", ".join(filter(None, parts))


def _work(finding: Finding) -> str:
    of_calls = " in what it calls" if finding.op == CALLED else ""
    return f"{counted(finding.per_step, 'operation')} per step{of_calls}"


def _time(finding: Finding) -> str:
    return f"{finding.percent:.0f} % of the step's time is spent here"


CAUSES: Final[Mapping[FindingKind, Callable[[Finding], str]]] = {
    FindingKind.WORK: _work,
    FindingKind.TIME: _time,
    FindingKind.IDLE: lambda f: (
        f"{f.percent:.0f} % of the step, in which the GPU has nothing to do"
    ),
    FindingKind.LEFT: lambda f: f"{f.op}, {_held(f)} leaked by each step",
    FindingKind.GARBAGE: lambda f: (
        f"{f.op}, {_held(f)} per step that only the garbage collector frees"
    ),
    FindingKind.BREAK: lambda _: "graph break",
    FindingKind.RECOMPILE: lambda f: f"compiled again, {times(f.per_step)}",
}
"""What to say of a cause that is neither a sync nor a copy."""


def _amounts(finding: Finding) -> Iterator[str]:
    if finding.blocked_ms:
        yield format_value(STEP_MS, finding.blocked_ms, digits=3)
    if finding.moved_bytes:
        yield size_in_words(finding.moved_bytes)


def times(count: int) -> str:
    """Write ``once``, ``2 times``."""
    return "once" if count == 1 else f"{count} times"


def _held(finding: Finding) -> str:
    kept = finding.workspace_bytes
    held = size_in_words(finding.held_bytes - kept)
    if kept:
        return f"{held} and {size_in_words(kept)} of cuBLAS"
    if finding.kind is FindingKind.PEAK:
        return held
    return f"{held} in {counted(finding.per_step, 'block')}"


def _phase(finding: Finding) -> str:
    """Name the phase where it is not the obvious one."""
    if finding.phase is None or finding.phase is Phase.FORWARD:
        return ""
    if finding.forward is None:
        return str(finding.phase.value)
    return f"{finding.phase.value} of {finding.forward.file}:{finding.forward.line}"


def inconclusive_remark(findings: Sequence[Finding]) -> str:
    """Say in a line where the host may wait; nothing if it cannot."""
    inconclusive = [f for f in findings if f.kind is FindingKind.INCONCLUSIVE]
    if not inconclusive:
        return ""
    places = list(dict.fromkeys(_place(f.location) for f in inconclusive))
    syncs = counted(sum(f.per_step for f in inconclusive), "more sync")
    return f"inconclusive: {syncs} at {join_fitting(places, MOST_PLACES)}"


def _place(location: Location | None) -> str:
    shown = short(location)
    return f"{shown.file}:{shown.line}" if shown else "line unknown"


def allowed_lines(verdicts: Sequence[TestVerdict]) -> Iterator[str]:
    """List the syncs that their author allows, and why."""
    for verdict in verdicts:
        for finding in verdict.findings:
            if finding.allowed is not None:
                yield (
                    f"allowed in {verdict.test}: {short(finding.location)}: "
                    f"{cause(finding)}: {finding.allowed}"
                )


# Lines that run other operations than before, in words.


LINES_OF_BLAME: Final = 3
"""Lines that a terminal shows of a comparison."""

LINES_OF_PAGE: Final = 12
"""The same of a page."""

OPS_WIDTH: Final = 60
"""Columns for the names of operations."""


def blame_blocks(
    changes: Sequence[LineChange], most: int = LINES_OF_BLAME
) -> list[Block]:
    """Name *most* of *changes* at most, and count all."""
    shown = blame_texts(changes, most)
    return [Field("" if n else "ops", text) for n, text in enumerate(shown)]


def blame_texts(changes: Sequence[LineChange], most: int = LINES_OF_PAGE) -> list[str]:
    """Name *most* of *changes* at most, a sentence each, and count the others."""
    shown = [*map(_in_words, changes[:most])]
    left = len(changes) - len(shown)
    if left:
        shown[-1] += f"; and {counted(left, 'more line')}"
    return shown


LOOPED: Final = 16
"""Times as often as before, from which on a line that runs an operation is a loop."""


def loop_fix(changes: Sequence[LineChange]) -> str:
    """Say what to do about the operation that a line has begun to run in a loop."""
    grown = [
        (after - before, op, after)
        for change in changes
        for op, (before, after) in change.ops.items()
        if op != CALLED and after >= LOOPED * max(1, before)
    ]
    if not grown:
        return ""
    _, op, times = max(grown)
    return (
        f"run {op} once on the whole batch, with a dim or torch.vmap, in place of "
        f"{times} times in a loop"
    )


def _in_words(change: LineChange) -> str:
    """Say what a line runs more or less, in which module and where."""
    if CALLED in change.ops:
        more = counted(change.added, "operation")
        return f"new call at {_place_of_change(change)}: +{more}"
    amount = _amount(change)
    in_module = f" in {change.module}" if change.module else ""
    ops = join_fitting([*_ops(change)], OPS_WIDTH)
    return f"{amount}{in_module}, {ops} at {_place_of_change(change)}"


def _amount(change: LineChange) -> str:
    if change.added:
        word = "operation" if abs(change.added) == 1 else "operations"
        return f"{change.added:+} {word}"
    sign = "-" if change.added_bytes < 0 else "+"
    size = size_in_words(abs(change.added_bytes))
    return f"{sign}{size} of results" if change.added_bytes else "other operations"


def _ops(change: LineChange) -> Iterator[str]:
    """Name new operations, then what runs in another number, most first."""
    order = sorted(
        change.ops.items(), key=lambda one: (one[1][0] > 0, -abs(one[1][1] - one[1][0]))
    )
    for op, (before, after) in order:
        if before == 0:
            yield f"new {op}" if after == 1 else f"new {op} x {after}"
        elif before != after:
            yield f"{op} {before} -> {after}"
    yield from (op for op, (before, after) in order if before == after)


def _place_of_change(change: LineChange) -> str:
    inside = f" ({change.innermost})" if change.innermost else ""
    return f"{change.location or 'line unknown'}{inside}"
