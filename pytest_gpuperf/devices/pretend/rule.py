"""One claim: which operations wait, when, how often and by what evidence."""

from __future__ import annotations

from dataclasses import dataclass

from .conditions import Condition
from .record import AuditKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Each of ``ops`` waits ``count`` times as often as ``when`` says.

    It holds from torch ``since`` on and, where there is one, below ``until``. ``source``
    is where the claim comes from.
    """

    ops: tuple[str, ...]
    when: Condition
    reason: str
    source: str
    count: int = 1
    kind: AuditKind = AuditKind.SYNC
    since: tuple[int, int] = (2, 6)
    until: tuple[int, int] | None = None
