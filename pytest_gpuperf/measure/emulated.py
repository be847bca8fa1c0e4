"""A measurement on a device without a clock: audit a few steps, predict their memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ..devices.audit_record import StepAudit
from ..devices.base import EmulatingDevice, Step
from ..devices.memory_picture import graphs_left, least_rise, remark_on_graphs
from ..devices.own_code import is_own
from ..devices.simulated import settings_against_allocated, settings_against_reserved
from ..model.finding import CALLED, Finding, FindingKind, Location
from ..model.measurement import FurtherSteps, Measurement
from ..model.metrics import (
    COMPILED,
    FLOPS,
    GARBAGE,
    GROWTH,
    LAUNCHES,
    METRICS,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    PREDICTED,
    RETAINED_GRAPHS,
    STEPWISE,
    SYNCS,
    WORKSPACES,
    Unit,
    counted,
)
from .further_steps import LOOKED_SHARE, LOOKED_STEPS, SeenStep, cause_of, look_further
from .memory import (
    COLLECTOR_OFF,
    LEAKS,
    MOST_MEMORY_STEPS,
    counting,
    findings_of_garbage,
    findings_of_picture,
    garbage_remark,
)
from .plan import (
    LATER,
    Deadline,
    Found,
    MeasuredStep,
    MeasurePlan,
    TimeShare,
    cut_short,
    untouched,
)
from .step import Subject
from .syncs import reason_on_line


if TYPE_CHECKING:
    from ..devices.simulated import MemoryAudit


PREDICTED_STEPS: Final = 2
"""Steps after the first, which allocates the persistent tensors. The last is explained, too."""

MOST_UNLIKE: Final = 3
"""Steps to explain until one is like that before it: what a step keeps may be freed some
steps later, and until then each begins with more."""

SEVERAL_STREAMS: Final = (
    "memory is taken on several streams, each with its own cached blocks, and the "
    "simulated allocator knows one stream"
)

COMPILED_PEAK: Final = (
    "torch.compile: the peak is that of eager code, and mostly a lower one on a GPU, "
    "where fused intermediates are never in memory"
)

COMPILED_RESERVED: Final = (
    "what torch reserves for compiled code was up to 20 % more than for eager code"
)

COLD_CACHE: Final = (
    "a step that compiles with a cold cache takes up to 50 MiB more, the L2 cache of an "
    "H100, which is emptied between kernels that are tried"
)

RETRIED: Final = (
    "the GPU would run out of memory in a step, and its allocator flush its cache"
)

PREDICTED_BYTES: Final = tuple(
    name for name, metric in PREDICTED.items() if metric.unit is Unit.BYTES
)

RESERVED: Final = (PEAK_RESERVED.name,)
"""What depends on the blocks that the allocator keeps."""

PREDICTED_NAMES: Final = (*PREDICTED_BYTES, RETAINED_GRAPHS.name)
"""What watching memory is for."""

PREDICTED_PEAKS: Final = tuple(name for name, m in PREDICTED.items() if m.error)


def predict_memory(memory: MemoryAudit, subject: Subject, root: str) -> Found:
    """Run ``PREDICTED_STEPS`` steps of *subject*, after one that *memory* has watched.

    Lines below the directory *root* are the project's. Raises whatever the step raises.
    """

    def run() -> Callable[[], object]:
        arguments = subject.arguments()
        return lambda: subject.step(*arguments)

    for _ in range(PREDICTED_STEPS - 1):
        # With its lines: a step may keep what it made until the next is over.
        memory.located_step(run(), root)
    picture = None
    for _ in range(MOST_UNLIKE):
        picture = memory.explained_step(run(), root)
        if picture is not None or memory.memories()[-1].peak is None:
            break
    # Steps that only confirm what leaks would make the peak of a leak larger.
    for_peak = len(memory.graphs)
    while len(memory.graphs) < MOST_MEMORY_STEPS and any(
        _numbers(memory, for_peak)[name] for name in LEAKS
    ):
        memory.located_step(run(), root)
    graphs_from = memory.graphs_from  # before a step of which no line is kept
    missing = [f"{op}: {reason}" for op, reason in memory.live.unchecked]
    if missing:
        reason = f"only a GPU can judge {'; '.join(missing)}"
        return Found(unmeasured=dict.fromkeys(PREDICTED_NAMES, reason))
    unmeasured = _unpredictable(several_streams=memory.live.several_streams)
    exact = {
        name: value
        for name, value in _numbers(memory, for_peak).items()
        if name not in unmeasured
    }
    found = (
        list(findings_of_picture(picture, PREDICTED_PEAKS))
        if picture is not None
        else []
    )
    if any(exact.get(name) for name in LEAKS):
        # Two more steps, so only if there is something to explain.
        left = memory.left_by_step(iter(run, None), root)
        found.extend(counting(left, LEAKS))
    if GARBAGE.name not in unmeasured and memory.may_leave_garbage:
        garbage = memory.garbage_of_step(iter(run, None), root)
        exact[GARBAGE.name] = garbage.nbytes
        found.extend(findings_of_garbage(garbage, (GARBAGE.name,)))
    predicted = Found(
        exact=exact,
        unmeasured=unmeasured,
        findings=tuple(found),
        remarks=tuple(_remarks(memory, exact, graphs_from)),
    )
    return of_compiled(predicted) if memory.live.is_compiled else predicted


def _remarks(
    memory: MemoryAudit, exact: Mapping[str, int], graphs_from: str
) -> Iterator[str]:
    if any(step.retries for step in memory.memories()[1:]):
        yield RETRIED
    # What grows has its lines among the findings.
    if (kept := exact.get(RETAINED_GRAPHS.name)) and not exact.get(GROWTH.name):
        yield remark_on_graphs(kept, graphs_from)
    garbage, peak = (exact.get(m.name, 0) for m in (GARBAGE, PEAK_ALLOCATED))
    if memory.collector.is_off:
        yield COLLECTOR_OFF.format(PREDICTED_STEPS + 1)
    elif garbage > GARBAGE.floor and peak:
        yield garbage_remark(garbage, peak)


def _numbers(memory: MemoryAudit, for_peak: int) -> Mapping[str, int]:
    # Without the first step, which takes what every later one keeps.
    steps = memory.memories()[1:]
    ends, steps = [step.end_bytes for step in steps], steps[: for_peak - 1]
    return {
        GROWTH.name: least_rise(ends) or 0,
        RETAINED_GRAPHS.name: graphs_left(memory.graphs[1:]) or 0,
        PEAK_ALLOCATED.name: max(step.allocated_bytes for step in steps),
        WORKSPACES.name: memory.live.workspace_bytes,
        PEAK_RESERVED.name: max(step.reserved_bytes for step in steps),
        GARBAGE.name: 0,
    }


def of_compiled(found: Found) -> Found:
    """Take predicted peaks of eager code as what they say of the same code compiled.

    Allocated bytes bound it, reserved ones say nothing.
    """
    unknown = {name: COMPILED_RESERVED for name in RESERVED if name in found.exact}
    exact = {n: value for n, value in found.exact.items() if n not in unknown}
    return replace(
        found,
        unmeasured={**found.unmeasured, **unknown},
        exact=exact,
        at_most={name: COMPILED_PEAK for name in PREDICTED_PEAKS if name in exact},
    )


def _unpredictable(*, several_streams: bool) -> Mapping[str, str]:
    """Why, by metric, streams or the allocator's settings leave no number."""
    reserved = settings_against_reserved(os.environ)
    if reserved is None and several_streams:
        reserved = SEVERAL_STREAMS
    allocated = settings_against_allocated(os.environ)
    found = {} if reserved is None else dict.fromkeys(RESERVED, reserved)
    return found if allocated is None else dict.fromkeys(PREDICTED_BYTES, allocated)


# Turns audited steps into findings and sync counts.

MOST_WORKING: Final = 60
"""Lines that run operations and are kept of a run."""


def counted_syncs(step: StepAudit) -> int:
    """Certain syncs of *step* that nobody allowed."""
    return sum(found.per_step for found in step.findings if found.metrics)


def findings_of(steps: Sequence[StepAudit]) -> tuple[Finding, ...]:
    """Findings of all *steps*, each with its count in the step that has most of it."""
    most: dict[Finding, int] = {}
    for step in steps:
        for cause, count in _syncs(step).items():
            most[cause] = max(count, most.get(cause, 0))
    waiting = [replace(cause, per_step=count) for cause, count in most.items()]
    moving = _largest(copy for step in steps for copy in step.copies)
    working = _working(steps)
    return tuple(sorted((*waiting, *moving, *working), key=_order))


def _working(steps: Sequence[StepAudit]) -> Iterator[Finding]:
    """Name the lines that run most operations, by the step that located them."""
    counts: Counter[tuple[Location, bool]] = Counter()
    for step in steps:
        for location, is_call, count in step.work:
            counts[location, is_call] += count
    for (location, is_call), count in counts.most_common(MOST_WORKING):
        yield Finding(
            kind=FindingKind.WORK,
            op=CALLED if is_call else None,
            per_step=count,
            location=location,
            metrics=(LAUNCHES.name, FLOPS.name),
        )


def _syncs(step: StepAudit) -> Counter[Finding]:
    """Count the syncs of *step* by their causes, allowed ones apart from the others."""
    counts: Counter[Finding] = Counter()
    for found in step.findings:
        counts[cause_of(found)] += found.per_step
    return counts


def _by_comments(step: StepAudit) -> StepAudit:
    """Allow what comments do: they allow what blocks have left on their lines."""
    findings = (
        found.allowing(reason_on_line(found.location)) if found.metrics else found
        for found in step.findings
    )
    return replace(step, findings=tuple(findings))


def _largest(transfers: Iterable[Finding]) -> Iterator[Finding]:
    """Of the same copies in several steps, those that carry most."""
    most: dict[Finding, Finding] = {}
    for finding in transfers:
        what = cause_of(finding)
        known = most.setdefault(what, finding)
        most[what] = replace(
            finding,
            per_step=max(finding.per_step, known.per_step),
            moved_bytes=max(finding.moved_bytes, known.moved_bytes),
        )
    yield from most.values()


def _order(finding: Finding) -> tuple[int, int, int, str]:
    order = list(FindingKind)
    return (
        order.index(finding.kind),
        -finding.per_step,
        -finding.moved_bytes,
        f"{finding.location} {finding.op}",
    )


AUDITED_STEPS: Final = 3

AS_EAGER: Final = (
    "the simulated GPU runs compiled code as eager code: add --gpuperf-device=cpu"
)

COMPILER: Final = "torch.compile"

_COMPILED: Final = tuple(metric.name for metric in COMPILED)

_PREDICTED: Final = frozenset(PREDICTED_NAMES)
_COUNTED: Final = LATER - _PREDICTED

MOST_GUESSES_NAMED: Final = 3
"""Operations that a reason names; the others are counted."""


def audit(device: EmulatingDevice, subject: Subject, plan: MeasurePlan) -> MeasuredStep:
    """Run one step, which makes what is made once, then watch memory, then audit.

    A count is that of the step with most of it. Raises ``StepError`` and whatever the
    step raises.
    """
    with ExitStack() as watch:
        measurement, result = _audited(device, subject, plan, watch)
    return MeasuredStep(measurement=measurement, result=result)


def _audited(
    device: EmulatingDevice, subject: Subject, plan: MeasurePlan, watch: ExitStack
) -> tuple[Measurement, object]:
    share = TimeShare.of(plan, device)
    numbered = _Numbered(subject.step)
    subject = replace(subject, step=numbered)
    to_predict, to_count = share.until(_PREDICTED), share.until(_COUNTED)
    prediction = Found(cut=_PREDICTED)
    # Memory comes first: it must see the first step, in which the optimizer's state is
    # made.
    memory = watch.enter_context(device.watching_memory())
    start_ns = device.now_ns()
    results = [memory.recorded_step(subject.run_once)]
    first_ms = (device.now_ns() - start_ns) / 1e6
    if to_predict.leaves((PREDICTED_STEPS + 1) * first_ms):
        # A training loop would have dropped the result, and the tensors in it.
        results.clear()
        prediction = predict_memory(memory, subject, device.root)
    if memory.live.is_emptied:
        # Whether the code waits where it empties the cache depends on what that has.
        memory.collector.release()
    else:
        watch.close()
    steps: list[StepAudit] = []
    first: list[SeenStep] = []
    while len(steps) < AUDITED_STEPS and (
        (to_count if not steps else share.cap).leaves(first_ms) or not results
    ):
        arguments = subject.arguments()
        # Lines cost a walk of the stack per operation, so only one step finds them.
        seen, result = device.audit(subject.step, arguments, locate_work=not steps)
        step = _by_comments(seen)
        steps.append(step)
        first.append(numbered.seen(step))
        results = [result]
    measurement = plan.begun(device, subject)
    if not steps:
        return cut_short(measurement), results[0]
    measurement = _counted(device, measurement, steps)
    if measurement.exact:
        measurement = prediction.added_to(measurement)
        looking = _Looking(device=device, subject=subject, numbered=numbered)
        measurement = looking.added_to(measurement, share, first)
        results += looking.results
    return measurement, results[-1]


class _Numbered:
    """Counts the steps that were run, whatever they were run for."""

    def __init__(self, step: Step) -> None:
        self.steps = 0
        self._step = step

    def __call__(self, *arguments: object) -> object:
        self.steps += 1
        return self._step(*arguments)

    def seen(self, step: StepAudit) -> SeenStep:
        """Return what *step*, the last one, did."""
        counts = _syncs(step)
        for copy in step.copies:
            counts[cause_of(copy)] += copy.per_step
        return SeenStep(number=self.steps, counts=counts)


@dataclass(slots=True, kw_only=True)
class _Looking:
    """A look at further steps; ``results`` has what the last of them returned."""

    device: EmulatingDevice
    subject: Subject
    numbered: _Numbered
    results: list[object] = field(default_factory=list)
    ended: str = ""
    raised: str = ""

    def added_to(
        self, measurement: Measurement, share: TimeShare, first: Sequence[SeenStep]
    ) -> Measurement:
        """Add what further steps wait for and copy, if the *first* do not show it."""
        seconds = LOOKED_SHARE * share.seconds
        until = Deadline.after(seconds, self.device.now_ns)
        further = look_further(first, self._step, until)
        if self.raised:
            number = self.numbered.steps
            steps = further.steps or FurtherSteps(first=number, last=number - 1)
            further = replace(further, steps=replace(steps, raised=self.raised))
        measurement = further.added_to(measurement)
        is_asked = SYNCS.name in share.asked
        if further.looked >= LOOKED_STEPS or not is_asked:
            return measurement
        remark = (
            f"syncs after step {self.numbered.steps} were not looked for, as "
            f"{self.ended or f'{seconds:.3g} s had passed'}"
        )
        return replace(measurement, remarks=(*measurement.remarks, remark))

    def _step(self, _: int) -> Sequence[SeenStep]:
        try:
            seen, result = self.device.audit(
                self.subject.step, self.subject.arguments()
            )
        except Exception as error:  # noqa: BLE001  a remark says what it was
            # Nobody asked for so many steps: the test's data may end here.
            what = f"raised {type(error).__name__}"
            self.ended = f"the next one {what}"
            self.raised = f"step {self.numbered.steps} {what}"
            return ()
        self.results[:] = [result]
        if seen.not_checked:
            self.ended = _why_unchecked(seen.not_checked, self.device.root)
            return ()
        return (self.numbered.seen(_by_comments(seen)),)


def _counted(
    device: EmulatingDevice, measurement: Measurement, steps: Sequence[StepAudit]
) -> Measurement:
    if not any(step.touched_gpu for step in steps):
        return untouched(measurement)
    unchecked = [
        *device.made_unchecked,
        *(missing for step in steps for missing in step.not_checked),
    ]
    measurement = replace(
        measurement,
        least=_least(steps),
        findings=findings_of(steps),
        operations=steps[0].operations,
        remarks=(
            *(
                *_as_eager(device),
                *filter(None, [device.gave_up_values]),
                *_differing(steps),
            ),
            *(_outside(device) if len(steps) > 1 else ()),
        ),
    )
    # One operation that cannot be judged may change every number after it.
    if unchecked:
        reason = _why_unchecked(unchecked, device.root)
        return replace(measurement, unmeasured=dict.fromkeys(METRICS, reason))
    if any(taken.op == COMPILER for taken in device.as_eager):
        lacking = measurement.lacking(dict.fromkeys(_COMPILED, AS_EAGER))
        return replace(lacking, exact=_most(steps))
    return replace(measurement, exact={**_most(steps), **dict.fromkeys(_COMPILED, 0)})


def _outside(device: EmulatingDevice) -> Iterable[str]:
    """Say what a step leaves to others: arguments are copied to the GPU, and no more."""
    for totals in device.between:
        syncs = totals.syncs - totals.blocking_copies
        flops = totals.counts[FLOPS.name]
        if syncs or flops:
            work = f"{counted(syncs, 'sync')} and {counted(flops, 'flop')}"
            yield (
                f"{work} per step are in setup, or in what frees the last result: no "
                "metric counts them"
            )


def _most(steps: Sequence[StepAudit]) -> dict[str, int]:
    counts = [_counts(step) for step in steps]
    return {name: max(count[name] for count in counts) for name in counts[0]}


def _least(steps: Sequence[StepAudit]) -> dict[str, int]:
    """Return what steps differ in by chance, of the step with the least of it."""
    most = _most(steps)
    least = {name: min(_counts(step)[name] for step in steps) for name in most}
    return {n: v for n, v in least.items() if n in STEPWISE and v < most[n]}


def _counts(step: StepAudit) -> Mapping[str, int]:
    return {SYNCS.name: counted_syncs(step), **step.totals.counts}


def _differing(steps: Sequence[StepAudit]) -> Iterable[str]:
    """Say which gated counts differ from step to step: the largest is the step's."""
    counts = [_counts(step) for step in steps]
    for name in counts[0]:
        values = [count[name] for count in counts]
        if METRICS[name].gated and len(set(values)) > 1:
            seen = ", ".join(map(str, values))
            yield f"{name} differs from step to step: {seen}; {_which(name)}"


def _which(name: str) -> str:
    """Say which of a count's values is judged."""
    if name in STEPWISE:
        return "budgets take the largest, baselines the smallest"
    return "the largest counts"


def _as_eager(device: EmulatingDevice) -> Iterable[str]:
    ops = dict.fromkeys(compiled.op for compiled in device.as_eager)
    return (f"{op}: judged as eager code" for op in ops)


def _why_unchecked(unchecked: Sequence[Finding], root: str) -> str:
    """Name what only a GPU can judge; a metric that it could move has no number."""
    named = list(
        dict.fromkeys(
            f"{missing.op}{_place(missing.location, root)}: {missing.reason}"
            for missing in unchecked
        )
    )
    left = len(named) - MOST_GUESSES_NAMED
    more = f"; and {left} more" if left > 0 else ""
    return f"only a GPU can judge {'; '.join(named[:MOST_GUESSES_NAMED])}{more}"


def _place(location: Location | None, root: str) -> str:
    """Name the line if it is the project's."""
    if location is None or not is_own(location.file, root):
        return ""
    return f" ({location.file.removeprefix(root).lstrip('/')}:{location.line})"
