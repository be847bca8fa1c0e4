"""Ranks: how many a test asks for, and what each of them showed."""

from __future__ import annotations

from dataclasses import dataclass


# A launcher's ranks: which of them a process is, and where their store is.


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One of ``count`` processes that torchrun started on ``machines`` machines.

    ``local_rank`` counts those of its machine. Their store is at ``host`` and ``port``;
    ``attempt`` tells restarts apart that have one store. They wait ``patience_s`` for
    each other before a test.
    """

    rank: int
    count: int
    local_rank: int
    machines: int
    host: str
    port: int
    attempt: str
    patience_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """So many processes execute a whole test together, in at most ``timeout_s``.

    Without a timeout the cap on what measuring may cost decides.
    """

    count: int
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One kind of collective operation in a step: ``calls`` and the bytes of them all.

    The bytes of one are those of its larger side, as NCCL's own tests count them: what
    an all-gather gives, what a reduce-scatter takes.
    """

    kind: str
    calls: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRank:
    """What the ranks of one step showed, by rank: median times, and memory at the peak.

    ``collectives`` are those of the rank that starts most of them. In a profiled step
    collectives ran for ``communication_ms``, of which computation hid all but
    ``exposed_ms``; both are empty if no trace shows them.
    """

    step_ms: tuple[float, ...] = ()
    peak_bytes: tuple[int, ...] = ()
    collectives: tuple[Collective, ...] = ()
    communication_ms: tuple[float, ...] = ()
    exposed_ms: tuple[float, ...] = ()

    @property
    def slowest(self) -> int:
        """Rank with the longest median step; the first of them."""
        return self.step_ms.index(max(self.step_ms))

    @property
    def skew(self) -> float | None:
        """Slowest median over the fastest; ``None`` if a time is missing."""
        if not self.step_ms or min(self.step_ms) <= 0:
            return None
        return max(self.step_ms) / min(self.step_ms)
