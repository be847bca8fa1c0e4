"""The interface of the reference check: another commit that settles failed times."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..model.ab import ReferenceResult
from ..model.baseline import Entry
from ..model.baseline import Origin
from ..model.environment import Hardware
from ..model.finding import Finding
from ..model.run import StepCall
from .plan import Planned
from .plan import Project
from .screening import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A call with a time that did not pass the screen, and its baseline."""

    call: str
    planned: Planned
    entry: Entry | None


class ReferenceCheck(Protocol):
    """Settles candidates by code that is not the present one."""

    def origin(self) -> Origin | None:
        """Name the present code; ``None`` if no version control knows it."""

    def settle(
        self,
        candidates: Sequence[Candidate],
        project: Project,
        hardware: Hardware,
        announce: Callable[[str], None],
    ) -> Mapping[str, ReferenceResult]:
        """Return what came of each call, if a reference was named."""

    def with_changes(
        self,
        findings: Sequence[Finding],
        call: str,
        entry: Entry | None,
        hardware: Hardware,
    ) -> tuple[Finding, ...]:
        """Say of each of *findings* whether its line changed since *entry* was recorded."""


def candidates_of(
    plan: Iterable[Planned],
    cases: Mapping[str, Case],
    entries: Mapping[str, Entry],
    is_candidate: Callable[[str, Sequence[StepCall]], bool],
) -> list[Candidate]:
    """Return every call, by key and runs, that *is_candidate*, in the order of *plan*."""
    return [
        Candidate(call=key, planned=planned, entry=entries.get(key))
        for planned in plan
        if planned.test in cases
        for key, calls in cases[planned.test].calls.items()
        if is_candidate(key, calls)
    ]
