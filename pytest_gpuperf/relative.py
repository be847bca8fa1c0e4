"""Names of files from a project's root on, as node ids have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .model.diagnosis import Diagnosis
from .model.finding import Location
from .model.measurement import Measurement


def below(root: Path, measurement: Measurement) -> Measurement:
    """Name the files of findings from *root* on, as node ids do, where they are in it."""
    return replace(
        measurement,
        findings=tuple(
            replace(
                finding,
                location=_relative(root, finding.location),
                innermost=_relative(root, finding.innermost),
                forward=_relative(root, finding.forward),
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
    return replace(diagnosis, parts=tuple(parts))


def _relative(root: Path, location: Location | None) -> Location | None:
    if location is None:
        return None
    return replace(location, file=_relative_path(root, location.file))


def _relative_path(root: Path, path: str) -> str:
    if not Path(path).is_relative_to(root):
        return path
    return Path(path).relative_to(root).as_posix()
