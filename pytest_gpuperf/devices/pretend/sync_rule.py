"""One claim: which operations wait, when, how often and by what evidence."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.finding import FindingKind
from .sync_conditions import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRule:
    """Each of ``ops`` waits ``count`` times as often as ``when`` says.

    It is true from torch ``since`` on and below ``until``, if that is given. ``source``
    is where the claim comes from. ``copied`` says how many bytes each of them copies to
    the device from pageable memory, if any, and ``read_back`` how many to such memory.
    """

    ops: tuple[str, ...]
    when: Condition
    reason: str
    source: str
    count: int = 1
    kind: FindingKind = FindingKind.SYNC
    since: tuple[int, int] = (2, 6)
    until: tuple[int, int] | None = None
    copied: Condition | None = None
    read_back: Condition | None = None
