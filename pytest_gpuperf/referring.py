"""What the gate asks of version control: other code to compare with, and its own."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .gate import Case
from .gate import Judge
from .judge.referred import is_in_doubt
from .model.baseline import Entry
from .model.baseline import Origin
from .model.environment import Hardware
from .model.settlement import Settlement
from .plan import Planned
from .plan import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A call of a test whose time the screen did not pass, and its baseline."""

    call: str
    planned: Planned
    entry: Entry | None


class Referee(Protocol):
    """Settles doubts by code that is not the present one."""

    def origin(self) -> Origin | None:
        """Name the present code; ``None`` where no version control knows it."""

    def settle(
        self,
        doubts: Sequence[Doubt],
        project: Project,
        hardware: Hardware,
        announce: Callable[[str], None],
    ) -> Mapping[str, Settlement]:
        """Return what came of each call, if a reference was named."""


def doubts_of(
    plan: Iterable[Planned],
    cases: Mapping[str, Case],
    entries: Mapping[str, Entry],
    judge: Judge,
) -> list[Doubt]:
    """Return every call whose time its baseline does not pass, in the order of *plan*."""
    return [
        Doubt(call=key, planned=planned, entry=entries.get(key))
        for planned in plan
        for key, calls in cases[planned.test].calls.items()
        if is_in_doubt(judge(calls))
    ]
