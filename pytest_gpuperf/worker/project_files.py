"""Names files of a measurement from a project's root on, as node ids have them."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..devices.own_code import name_of
from ..model.finding import Diagnosis
from ..model.finding import Location
from ..model.finding import Wait
from ..model.measurement import Measurement


LONGEST_SOURCE: Final = 120
"""Characters of a line that are enough to know it by."""


def below(root: Path, measurement: Measurement) -> Measurement:
    """Name the user's own files from *root* on, as node ids do.

    Source lines are read now, while the files are still those that ran.
    """
    return replace(
        measurement,
        findings=tuple(
            replace(
                finding,
                location=_relative(root, finding.location),
                innermost=_relative(root, finding.innermost),
                forward=_relative(root, finding.forward),
                source=_source(finding.location),
            )
            for finding in measurement.findings
        ),
        snapshot=_relative_path(root, measurement.snapshot),
        trace=_relative_path(root, measurement.trace),
        diagnosis=_diagnosis(root, measurement.diagnosis),
    )


def _diagnosis(root: Path, diagnosis: Diagnosis | None) -> Diagnosis | None:
    if diagnosis is None:
        return None
    parts = (
        replace(part, location=_relative(root, part.location))
        for part in diagnosis.parts
    )
    timeline = diagnosis.timeline
    return replace(
        diagnosis,
        parts=tuple(parts),
        timeline=replace(timeline, waits=tuple(_waits(root, timeline.waits)))
        if timeline
        else None,
    )


def _waits(root: Path, waits: Iterable[Wait]) -> Iterator[Wait]:
    for wait in waits:
        yield replace(wait, location=_relative(root, wait.location))


def _source(location: Location | None) -> str:
    if location is None or not location.exact:
        return ""
    return linecache.getline(location.file, location.line).strip()[:LONGEST_SOURCE]


def _relative(root: Path, location: Location | None) -> Location | None:
    if location is None:
        return None
    return replace(location, file=name_of(location.file, str(root)))


def _relative_path(root: Path, path: str) -> str:
    if not Path(path).is_relative_to(root):
        return path
    return Path(path).relative_to(root).as_posix()
