"""One measurement of what several ranks measured together."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from statistics import median

from ..model.loader_metric import LOADER_WAIT
from ..model.measurement import Distribution
from ..model.measurement import Measurement
from ..model.metric import STEP_MS
from ..model.metric import SYNCS
from ..model.rank_metric import COLLECTIVE_BYTES
from ..model.rank_metric import COLLECTIVES
from ..model.rank_metric import RANK_PEAK
from ..model.rank_metric import RANK_SKEW
from ..model.ranks import ByRank
from ..model.ranks import Collective
from ..probes.communication import Communication
from ..report.numbers import format_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one rank found: its measurement, its collectives, how long they ran."""

    measurement: Measurement
    collectives: tuple[Collective, ...] = ()
    communication: Communication | None = None


def joined(
    shares: Sequence[Share],
    rounds_ns: Sequence[Sequence[int]],
    peak_bytes: Sequence[int],
) -> Measurement:
    """Return rank 0's measurement with the worst rank's counts, and all ranks' numbers.

    Each of *rounds_ns*, the rounds that were timed, and *peak_bytes* are by rank. A rank whose step never touched its GPU
    speaks for all of them.
    """
    measurements = [share.measurement for share in shares]
    first = next((m for m in measurements if not m.times), measurements[0])
    if not first.times:
        return first
    busiest = max((share.collectives for share in shares), key=_calls)
    by_rank = ByRank(
        step_ms=tuple(_step_ms(rounds_ns, first.times[STEP_MS.name].q50)),
        peak_bytes=tuple(peak_bytes),
        collectives=busiest,
        **_communication(shares),
    )
    return replace(
        first,
        times={**first.times, **_times(by_rank), **_loader_wait(measurements)},
        exact=_exact(measurements, by_rank, missed=bool(first.missed)),
        missed=_missed(first),
        findings=max(measurements, key=_syncs).findings,
        dirty=tuple(_said([m.dirty for m in measurements])),
        remarks=(
            *_said([m.remarks for m in measurements]),
            *remarks_on(by_rank),
        ),
        by_rank=by_rank,
    )


def _step_ms(rounds_ns: Sequence[Sequence[int]], median_ms: float) -> Iterator[float]:
    """Median time of a step by rank, where a round of the slowest has *median_ms* steps."""
    whole_ns = median(map(max, rounds_ns)) if rounds_ns else 0
    for own_ns in zip(*rounds_ns, strict=True):
        yield median(own_ns) / whole_ns * median_ms if whole_ns else 0.0


def _communication(shares: Sequence[Share]) -> dict[str, tuple[float, ...]]:
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


def _syncs(measurement: Measurement) -> int:
    return measurement.exact.get(SYNCS.name, 0)


def _times(by_rank: ByRank) -> dict[str, Distribution]:
    skew = by_rank.skew
    return {} if skew is None else {RANK_SKEW.name: Distribution.of([skew])}


def _loader_wait(measurements: Sequence[Measurement]) -> dict[str, Distribution]:
    """Return that of the rank that waits longest, where they have a loader."""
    name = LOADER_WAIT.name
    seen = [m.times[name] for m in measurements if name in m.times]
    return {name: max(seen, key=lambda share: share.mean)} if seen else {}


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
    """What a time cap left out it left out of all of them."""
    if not first.missed:
        return {}
    reason = next(iter(first.missed.values()))
    later = (RANK_PEAK, COLLECTIVES, COLLECTIVE_BYTES)
    return {**first.missed, **{metric.name: reason for metric in later}}


def _said(by_rank: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give what all ranks say once, and name the rank of all else."""
    for text in dict.fromkeys(text for said in by_rank for text in said):
        ranks = [str(rank) for rank, said in enumerate(by_rank) if text in said]
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
    yield f"they run for {ran} by rank, {exposed} of it not hidden by computation"


def _in_words(collective: Collective) -> str:
    size = format_value(COLLECTIVE_BYTES, collective.size_bytes)
    return f"{collective.calls} {collective.kind} ({size})"
