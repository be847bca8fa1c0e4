"""A place to measure at: one GPU, or the machine's cores."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One device that one process at a time is measured on.

    ``visible`` is its entry in ``CUDA_VISIBLE_DEVICES``, ``None`` where nothing needs
    hiding. ``lock`` names it among all runs on this machine, ``None`` where nobody can
    be in the way. ``board`` is the fingerprint that baselines know a GPU by.
    """

    visible: str | None = None
    lock: str | None = None
    board: str | None = None
