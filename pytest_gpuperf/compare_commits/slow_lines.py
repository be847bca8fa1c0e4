"""Names the lines of what became worse, and says which of them changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace
from functools import cache
from functools import partial
from pathlib import Path
from typing import Final

from ..errors import UsageError
from ..model.ab import Answer
from ..model.ab import Comparison
from ..model.environment import Capability
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.finding import Location
from ..runner.evidence import MOST_TRACES
from ..runner.git import Repository
from .side import Side
from .versions import Version


# Lines that are not as they were in a commit.

LINES_THAT_CHANGE: Final = frozenset(
    {
        FindingKind.TIME,
        FindingKind.PEAK,
        FindingKind.MEMORY,
        FindingKind.LEFT,
        FindingKind.GARBAGE,
    }
)
"""Kinds of findings with lines that no baseline stores: git alone knows what is new."""

LEAST_HELD_SHARE: Final = 0.05
"""Share of the peak below which the memory of a line explains no growth."""


def with_changes(
    findings: Sequence[Finding], is_changed: Callable[[Location], bool], since: str
) -> tuple[Finding, ...]:
    """Say of each of *findings* if its line changed *since* a commit."""
    most_bytes = max((found.held_bytes for found in findings), default=0)
    return tuple(
        replace(found, changed_since=since)
        if _may_explain(found, most_bytes)
        and found.location
        and is_changed(found.location)
        else found
        for found in findings
    )


def _may_explain(finding: Finding, most_bytes: int) -> bool:
    small = finding.held_bytes < LEAST_HELD_SHARE * most_bytes
    is_time = finding.kind is FindingKind.TIME
    return finding.kind in LINES_THAT_CHANGE and (is_time or not small)


# The lines of what a comparison of two versions blames.

WATCHED: Final = (Capability.KERNELS, Capability.HOST_WORK)
"""What a device has, one of them, if the time of its lines can be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blamed:
    """Finds the lines of ``after`` that explain a change against ``before``.

    ``after`` runs once more for the time of its lines, with files in ``scratch``.
    """

    repository: Repository
    versions: tuple[Version, Version]
    after: Side
    scratch: Path
    announce: Callable[[str], None]

    def located(
        self, calls: Mapping[str, Sequence[Comparison]]
    ) -> tuple[Comparison, ...]:
        """Return all *calls*, by test, those that became worse with their lines."""
        slower = [test for test, made in calls.items() if any(map(_is_slower, made))]
        timed = self._timed(slower[:MOST_TRACES])
        before, after = (version.commit for version in self.versions)
        changed = cache(
            partial(self.repository.changed_lines, str(before), until=after)
        )
        return tuple(
            self._with_lines(call, timed.get(call.test, ()), changed)
            if call.is_worse
            else call
            for made in calls.values()
            for call in made
        )

    def _timed(self, tests: Sequence[str]) -> dict[str, tuple[Finding, ...]]:
        """Return by call the lines that take most of a step."""
        kind = self.after.collected.environment.hardware.kind
        if not tests or not any(map(kind.has, WATCHED)):
            return {}
        self.announce(f"the lines that take the time: {len(tests)} slower")
        found: dict[str, tuple[Finding, ...]] = {}
        for test in tests:
            # A device that does not come free is no reason to lose what was compared.
            with suppress(UsageError):
                for result in self.after.trace(test, self.scratch):
                    for call in result.calls:
                        found[call.measurement.test] = call.measurement.findings
        return found

    def _with_lines(
        self,
        call: Comparison,
        timed: Sequence[Finding],
        changed: Callable[[str], frozenset[int]],
    ) -> Comparison:
        def is_changed(at: Location) -> bool:
            return at.line in changed(self._path_of(at))

        findings = with_changes(
            (*call.findings, *timed), is_changed, self.versions[0].label
        )
        return replace(call, findings=findings)

    def _path_of(self, at: Location) -> str:
        """Return the path by which git knows the file of *at*."""
        real = os.path.realpath(Path(self.after.collected.project.rootdir, at.file))
        return os.path.relpath(real, self.after.relocation.root)


def _is_slower(call: Comparison) -> bool:
    return call.time is not None and call.time.answer is Answer.SLOWER
