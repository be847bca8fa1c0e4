"""One measurement of what several ranks measured together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

from ..measure.gpu_activity import Communication
from ..measure.profile import PEAKS
from ..model.finding import Finding
from ..model.measurement import Distribution, Measurement
from ..model.metric import OfRanks
from ..model.metrics import (
    COLLECTIVE_BYTES,
    COLLECTIVES,
    GRAPH_BREAKS,
    METRICS,
    RANK_PEAK,
    RANK_SKEW,
    STEP_MS,
    SYNCS,
)
from ..model.ranks import ByRank, Collective
from ..report.numbers import format_value


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """What one rank found: its measurement, its collectives and their lines, how long they ran."""

    measurement: Measurement
    collectives: tuple[Collective, ...] = ()
    lines: tuple[Finding, ...] = ()
    communication: Communication | None = None


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
        collectives=busiest.collectives,
        **_communication(shares),
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


def _communication(shares: Sequence[RankShare]) -> dict[str, tuple[float, ...]]:
    """By rank, where the traces of all ranks show it."""
    seen = [s.communication for s in shares if s.communication is not None]
    if len(seen) < len(shares):
        return {}
    return {
        "communication_ms": tuple(one.total_ms for one in seen),
        "exposed_ms": tuple(one.exposed_ms for one in seen),
    }


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
