"""Names the lines of what became worse, and says which of them changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from functools import partial
from pathlib import Path
from typing import Final

from ..errors import UsageError
from ..model.ab import Comparison
from ..model.environment import Capability
from ..model.finding import Finding
from ..model.finding import Location
from ..model.metrics import STEP_MS
from ..runner.evidence import MOST_TRACES
from ..runner.recorded_code import with_changes
from .side_server import SideServer
from .sides import Side


# The lines of what a comparison of two versions blames.

WATCHED: Final = (Capability.KERNELS, Capability.HOST_WORK)
"""What a device has, one of them, if the time of its lines can be seen."""


def with_lines(
    calls: Mapping[str, Sequence[Comparison]],
    before: Side,
    after: SideServer,
    scratch: Path,
) -> tuple[Comparison, ...]:
    """Return all *calls*, by test, those that became worse with their lines.

    *after* runs once more for the time of its lines, with files in *scratch*.
    """
    slower = [
        test
        for test, made in calls.items()
        if any(STEP_MS.name in call.worse_metrics for call in made)
    ]
    timed = _timed(after, slower[:MOST_TRACES], scratch)
    changed = _changed_lines(before, after.side)

    def is_changed(at: Location) -> bool:
        return at.line in changed(_path_in(after, at))

    def located(call: Comparison) -> Comparison:
        lines = (*call.findings, *timed.get(call.test, ()))
        return replace(call, findings=with_changes(lines, is_changed, before.label))

    return tuple(
        located(call) if call.is_worse else call
        for made in calls.values()
        for call in made
    )


def _changed_lines(before: Side, after: Side) -> Callable[[str], frozenset[int]]:
    """Return what names the lines of a file that changed; none without a commit."""
    if before.repository is None:
        return lambda _: frozenset()
    changed, commit = before.repository.changed_lines, str(before.commit)
    return cache(partial(changed, commit, until=after.commit))


def _timed(
    after: SideServer, tests: Sequence[str], scratch: Path
) -> dict[str, tuple[Finding, ...]]:
    """Return by call the lines that take most of a step."""
    kind = after.collected.environment.hardware.kind
    if not tests or not any(map(kind.has, WATCHED)):
        return {}
    after.announce(f"the lines that take the time: {len(tests)} slower")
    found: dict[str, tuple[Finding, ...]] = {}
    for test in tests:
        # A device that does not come free is no reason to lose what was compared.
        with suppress(UsageError):
            for result in after.trace(test, scratch):
                for call in result.calls:
                    found[call.measurement.test] = call.measurement.findings
    return found


def _path_in(after: SideServer, at: Location) -> str:
    """Return the path by which git knows the file of *at*."""
    real = os.path.realpath(Path(after.collected.project.rootdir, at.file))
    return os.path.relpath(real, after.side.relocation.root)
