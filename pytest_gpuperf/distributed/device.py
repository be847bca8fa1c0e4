"""A device with readings that all ranks agree on, so that all take the same decisions.

When a warm-up ends, how many rounds are timed and what is repeated depends on clocks
and counters. If each rank read its own, one would make a step more than its peers and
wait in it for ever.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from statistics import median
from typing import Any, NamedTuple, TypeVar

from ..devices.base import (
    Fetch,
    Kernel,
    MeasuringDevice,
    MemoryReading,
    Step,
    TimedFetch,
    TraceEvent,
)
from ..devices.compile import CompiledCode
from ..measure.gpu_activity import Communication, find_communication
from ..measure.profile import PEAKS
from ..measure.timing import ROUNDS
from ..model.environment import DeviceKind, Environment
from ..model.finding import Finding
from ..model.measurement import ByRank, Collective, Distribution, Measurement
from ..model.metrics import (
    COLLECTIVE_BYTES,
    COLLECTIVES,
    GRAPH_BREAKS,
    METRICS,
    RANK_PEAK,
    RANK_SKEW,
    STEP_MS,
    SYNCS,
    OfRanks,
)
from ..report.numbers import format_value


# Messages between ranks that measure together.

T = TypeVar("T")


class TorchPeers:
    """All ranks, with this one. Each must ask the same question at the same time.

    They are those of the process group, through a gloo group that no test knows of.

    On a group of their own, our collectives cannot mix with those of a test, and no GPU
    works for us.
    """

    def __init__(self) -> None:
        from torch import distributed

        self._group: Any = distributed.new_group(backend="gloo")
        self.count = int(distributed.get_world_size())

    def integers(self, values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return what each rank gave, by rank: as many as this one gives."""
        import torch
        from torch import distributed

        # The device is named, as a test may have set a default device.
        own = torch.tensor(values, dtype=torch.int64, device="cpu")
        seen = [torch.empty_like(own) for _ in range(self.count)]
        distributed.all_gather(seen, own, group=self._group)
        return tuple(tuple(one.tolist()) for one in seen)

    def objects(self, value: T) -> tuple[T, ...]:
        """Return what each rank gave, by rank."""
        from torch import distributed

        seen: list[Any] = [None] * self.count
        distributed.all_gather_object(seen, value, group=self._group)
        return tuple(seen)


class AgreedDevice(MeasuringDevice):
    """*device* as all *peers* see it together: each method is called by all of them.

    Its clock is that of the slowest rank, and stops while they agree: a round begins
    when the last rank is there, and takes as long as the slowest. Sizes are those of
    the rank that needs most, but what steps leak is added up.
    """

    def __init__(
        self, device: MeasuringDevice, peers: TorchPeers, machines: int = 1
    ) -> None:
        self._device = device
        self._peers = peers
        self._machines = machines
        self._now_ns = 0
        self._agreeing_process_ns = 0
        self._since_ns = device.now_ns()
        self._elapsed_ns: tuple[int, ...] = ()
        self._rounds_ns: list[tuple[int, ...]] = []
        self._peaks: list[tuple[int, ...]] = []
        self.trace: Sequence[TraceEvent] = ()

    @property
    def kind(self) -> DeviceKind:
        return self._device.kind

    @property
    def torch_device(self) -> str:
        return self._device.torch_device

    @property
    def unmeasurable(self) -> Mapping[str, str]:
        return self._device.unmeasurable

    @property
    def is_ranked(self) -> bool:
        return True

    @property
    def rounds_ns(self) -> tuple[tuple[int, ...], ...]:
        """Nanoseconds of the last timed rounds, by rank."""
        return tuple(self._rounds_ns[-ROUNDS:])

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """Most memory of a step, by rank."""
        return tuple(max(peaks) for peaks in zip(*self._peaks, strict=True))

    def environment(self) -> Environment:
        """Add the numbers of ranks and of machines: other ones make other numbers."""
        alone = self._device.environment()
        several = {"machines": str(self._machines)} if self._machines > 1 else {}
        ranks = {"ranks": str(self._peers.count), **several}
        return replace(alone, software={**alone.software, **ranks})

    def preflight(self) -> None:
        self._device.preflight()

    def prepare(self, step: Step, test: str) -> Step:
        self._rounds_ns.clear()
        self._peaks.clear()
        return self._device.prepare(step, test)

    def timed_fetch(self, fetch: Fetch) -> TimedFetch:
        return self._device.timed_fetch(fetch)

    def synchronize(self) -> None:
        self._device.synchronize()

    def now_ns(self) -> int:
        """Add the longest that any rank took since the last question."""
        elapsed_ns = self._device.now_ns() - self._since_ns
        process_ns = self._device.process_ns()
        self._elapsed_ns = tuple(ns for (ns,) in self._peers.integers((elapsed_ns,)))
        self._now_ns += max(self._elapsed_ns)
        # The agreement costs CPU time of its own, which is subtracted from what the
        # steps took.
        self._agreeing_process_ns += self._device.process_ns() - process_ns
        self._since_ns = self._device.now_ns()
        return self._now_ns

    def own_now_ns(self) -> int:
        """Return the time of the rank that has used least: the others wait for it."""
        own = self._peers.integers((self._device.own_now_ns(),))
        return min(ns for (ns,) in own)

    def process_ns(self) -> int:
        return self._device.process_ns() - self._agreeing_process_ns

    def waiting_ns(self) -> int | None:
        return self._device.waiting_ns()

    def all_waiting_ns(self) -> int | None:
        """Return all the time so far, as other ranks may have waited for all of it."""
        return self._now_ns

    def span_ms(self, start: object, end: object) -> float | None:  # noqa: ARG002
        """Keep the time of the round that just ended: it is called once per round."""
        self._rounds_ns.append(self._elapsed_ns)
        return None

    def settling(self) -> tuple[int, ...]:
        """Add up the counters of all ranks: they only ever grow."""
        counters = self._peers.integers(self._device.settling())
        return tuple(sum(values) for values in zip(*counters, strict=True))

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode | None:  # noqa: ARG002
        """Let all code of the process count: a rank that ran a step would run it alone."""
        return self._device.compiled(None)

    def disturbance(self) -> str | None:
        """Say what disturbs the first disturbed rank."""
        # Mostly nothing does: one integer is far cheaper to exchange than objects,
        # which are pickled and take two collectives.
        own = self._device.disturbance()
        if not any(any(seen) for seen in self._peers.integers((own is not None,))):
            return None
        everyone = enumerate(self._peers.objects(own))
        return next(f"rank {rank}: {why}" for rank, why in everyone if why is not None)

    def remarks(self) -> Sequence[str]:
        return self._device.remarks()

    def clock_mhz(self) -> int | None:
        return self._device.clock_mhz()

    def fingerprint(self) -> str | None:
        return self._device.fingerprint()

    @contextmanager
    def sentinels(self) -> Iterator[Mapping[str, Kernel]]:
        """Lend kernels that run on all ranks: if one cannot, the others would wait."""
        with ExitStack() as lent:
            tried = self._tried(lent)
            answers = self._peers.integers((bool(tried),))
            able = all(is_able for (is_able,) in answers)
            kernels = {n: _forgiving(k) for n, k in tried.items() if able}
            try:
                yield kernels
            finally:
                # The caller keeps this dict; emptied, it lets a GPU's memory be freed.
                kernels.clear()

    def _tried(self, lent: ExitStack) -> Mapping[str, Kernel]:
        """Run each of this rank's own once; return none of them if one fails."""
        # Every rank must get to the agreement that follows, so an error is an answer
        # here and not an exception: a rank that raised would leave its peers waiting.
        try:
            kernels = lent.enter_context(self._device.sentinels())
            for kernel in kernels.values():
                kernel()
            self._device.synchronize()
        except RuntimeError:
            return {}
        return kernels

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        reading = self._device.measure_memory(step, arguments)
        names = sorted(reading.exact)
        # -1 means unknown: ranks exchange integers, and all of them the same number.
        end_bytes = -1 if reading.end_bytes is None else reading.end_bytes
        graphs = -1 if reading.graphs is None else reading.graphs
        replayed = -1 if reading.graph_bytes is None else reading.graph_bytes
        garbage = -1 if reading.garbage_bytes is None else reading.garbage_bytes
        own = (*(reading.exact[n] for n in names), end_bytes, graphs, replayed, garbage)
        *sizes, ends, kept, pools, freed = zip(*self._peers.integers(own), strict=True)
        exact = dict(zip(names, sizes, strict=True))
        self._peaks += [by_rank for name, by_rank in exact.items() if name in PEAKS]
        return MemoryReading(
            exact={name: max(by_rank) for name, by_rank in exact.items()},
            end_bytes=None if min(ends) < 0 else sum(ends),
            graphs=None if min(kept) < 0 else sum(kept),
            graph_bytes=max(pools) if max(pools) >= 0 else None,
            garbage_bytes=None if min(freed) < 0 else sum(freed),
            collecting=reading.collecting,
        )

    def blocks(self) -> Mapping[int, int]:
        return self._device.blocks()

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        trace = self._device.profile(step, batches)
        if not self.lines_take_time:
            self.trace = trace
        return trace

    @property
    def lines_take_time(self) -> bool:
        return self._device.lines_take_time

    def plain_profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        self.trace = self._device.plain_profile(step, batches)
        return self.trace

    def any_rank(self, answer: bool) -> bool:  # noqa: FBT001
        return any(flag for (flag,) in self._peers.integers((int(answer),)))

    def together(self, own: Measurement, run: Callable[[], object]) -> Measurement:
        """Count the collectives of a step, and join what all ranks found: it is the same."""
        from .collectives import count_collectives

        # All ranks share one clock, so all of them were cut short or none: a step of some
        # ranks alone would hang.
        collectives, lines = ((), ()) if why_cut_short(own) else count_collectives(run)
        self.synchronize()
        share = RankShare(own, collectives, lines, find_communication(self.trace))
        return joined(self._peers.objects(share), self.rounds_ns, self.peak_bytes)


def _forgiving(kernel: Kernel) -> Kernel:
    """Return *kernel*, which ran before, so that no rank is left alone if it fails."""

    def run() -> None:
        with suppress(RuntimeError):
            kernel()

    return run


# One measurement out of those of all ranks.


class RankShare(NamedTuple):
    """What one rank found: its measurement, its collectives, their lines and their time."""

    measurement: Measurement
    collectives: Sequence[Collective]
    lines: Sequence[Finding]
    communication: Communication | None


def joined(
    shares: Sequence[RankShare],
    rounds_ns: Sequence[Sequence[int]],
    peak_bytes: Sequence[int],
) -> Measurement:
    """Return rank 0's measurement with the worst rank's counts, and all ranks' numbers.

    Each of *rounds_ns*, the timed rounds, and *peak_bytes* are by rank. If the step of
    one rank never touched its GPU, the measurement of that rank is returned.
    """
    measurements = [share.measurement for share in shares]
    first = next((m for m in measurements if not m.times), measurements[0])
    if not first.times:
        return first
    unseen = _unseen_peaks(measurements)
    busiest = max(shares, key=lambda share: _calls(share.collectives))
    by_rank = ByRank(
        step_ms=tuple(_step_ms(rounds_ns, first.times[STEP_MS.name].q50)),
        peak_bytes=() if unseen else tuple(peak_bytes),
        collectives=tuple(busiest.collectives),
        **_communication([share.communication for share in shares]),
    )
    waiting = max(measurements, key=lambda m: m.exact.get(SYNCS.name, 0))
    return replace(
        first,
        times={**first.times, **_times(by_rank), **_largest(measurements)},
        exact=_exact(measurements, by_rank, missed=bool(why_cut_short(first))),
        missed=_missed(first) | unseen,
        findings=(*waiting.findings, *busiest.lines),
        dirty=tuple(_merged_remarks([m.dirty for m in measurements])),
        remarks=(
            *_merged_remarks([m.remarks for m in measurements]),
            *remarks_on(by_rank),
        ),
        by_rank=by_rank,
    )


def _step_ms(rounds_ns: Sequence[Sequence[int]], median_ms: float) -> Iterator[float]:
    """Yield the median time of a step by rank; that of the slowest is *median_ms*."""
    whole_ns = median(map(max, rounds_ns)) if rounds_ns else 0
    for own_ns in zip(*rounds_ns, strict=True):
        yield median(own_ns) / whole_ns * median_ms if whole_ns else 0.0


def _communication(
    found: Sequence[Communication | None],
) -> dict[str, tuple[float, ...]]:
    """By rank, where the traces of all ranks show it."""
    seen = [one for one in found if one is not None]
    if len(seen) < len(found):
        return {}
    total_ms, exposed_ms = zip(*seen, strict=True)
    return {"communication_ms": total_ms, "exposed_ms": exposed_ms}


def _calls(collectives: Sequence[Collective]) -> int:
    return sum(collective.calls for collective in collectives)


def _times(by_rank: ByRank) -> dict[str, Distribution]:
    skew = by_rank.skew
    return {} if skew is None else {RANK_SKEW.name: Distribution.of([skew])}


def _largest(measurements: Sequence[Measurement]) -> dict[str, Distribution]:
    """Return what the worst rank has of each time or share that is not the first's."""
    names = [n for n, m in METRICS.items() if m.of_ranks is OfRanks.LARGEST]
    seen = {n: [m.times[n] for m in measurements if n in m.times] for n in names}
    return {
        name: max(of_ranks, key=lambda found: found.mean)
        for name, of_ranks in seen.items()
        if of_ranks
    }


def _exact(
    measurements: Sequence[Measurement], by_rank: ByRank, *, missed: bool
) -> dict[str, int]:
    names = [
        n for n in measurements[0].exact if all(n in m.exact for m in measurements)
    ]
    exact = {name: max(m.exact[name] for m in measurements) for name in names}
    if by_rank.peak_bytes:
        exact[RANK_PEAK.name] = max(by_rank.peak_bytes)
    if not missed:
        exact[COLLECTIVES.name] = _calls(by_rank.collectives)
        exact[COLLECTIVE_BYTES.name] = sum(c.size_bytes for c in by_rank.collectives)
    return exact


def _missed(first: Measurement) -> dict[str, str]:
    """Return what the time cap left out: it is the same on all ranks."""
    missed = dict(first.missed)
    if reason := why_cut_short(first):
        later = (RANK_PEAK, COLLECTIVES, COLLECTIVE_BYTES)
        missed |= {metric.name: reason for metric in later}
    return missed


def _unseen_peaks(measurements: Sequence[Measurement]) -> dict[str, str]:
    """Say why no peak is known: one rank without makes the largest unknown."""
    missed = [
        {n: why for n, why in m.missed.items() if n in PEAKS} for m in measurements
    ]
    why = next(_merged_remarks([tuple(own.values()) for own in missed]), None)
    names = (*chain(*missed), RANK_PEAK.name)
    return dict.fromkeys(names, why) if why else {}


def why_cut_short(measurement: Measurement) -> str:
    """Say why a time cap left no room for what is counted after the trace, if it did."""
    last = GRAPH_BREAKS if SYNCS.name in measurement.unmeasured else SYNCS
    return measurement.missed.get(last.name, "")


def _merged_remarks(by_rank: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield what all ranks say once, and name the ranks of all else."""
    for text in dict.fromkeys(text for own in by_rank for text in own):
        ranks = [str(rank) for rank, own in enumerate(by_rank) if text in own]
        if len(ranks) == len(by_rank):
            yield text
        else:
            yield f"rank {', '.join(ranks)}: {text}"


def remarks_on(by_rank: ByRank) -> Iterator[str]:
    """Say what each rank took, and which collectives a step has."""
    skew = by_rank.skew
    if skew is not None:
        times = ", ".join(format_value(STEP_MS, ms) for ms in by_rank.step_ms)
        yield (
            f"median step by rank {times}: rank {by_rank.slowest} is slowest, "
            f"{format_value(RANK_SKEW, skew)} the fastest"
        )
    if by_rank.peak_bytes:
        peaks = ", ".join(format_value(RANK_PEAK, b) for b in by_rank.peak_bytes)
        yield f"peak by rank {peaks}"
    if by_rank.collectives:
        yield "a step has " + ", ".join(map(_in_words, by_rank.collectives))
        yield from _exposure(by_rank)


def _exposure(by_rank: ByRank) -> Iterator[str]:
    if not by_rank.exposed_ms:
        yield "no trace of them, so what computation hides of them is not known"
        return
    ran, exposed = (
        ", ".join(format_value(STEP_MS, ms) for ms in times)
        for times in (by_rank.communication_ms, by_rank.exposed_ms)
    )
    yield f"they run for {ran} by rank, {exposed} not hidden by computation"


def _in_words(collective: Collective) -> str:
    size = format_value(COLLECTIVE_BYTES, collective.size_bytes)
    return f"{collective.calls} {collective.kind} ({size})"
