"""A launcher's ranks: which of them a process is, and where they meet."""

from __future__ import annotations

from dataclasses import dataclass


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
