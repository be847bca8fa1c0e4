"""What a few more steps tell of a failure for memory, recorded and looked around in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..devices.compile_counters import compile_counters
from ..devices.memory_picture import Picture
from ..devices.memory_picture import Role
from ..devices.protocol import Device
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.measurement import Measurement
from ..model.memory_metric import PEAK_ALLOCATED
from ..model.memory_metric import PEAK_REQUESTED
from ..model.memory_metric import PEAK_RESERVED
from .file_name import file_name
from .pictured import peak_of_picture
from .portable import portable_from
from .snapshot import Held
from .snapshot import held_at_peak
from .snapshot import read_snapshot
from .snapshot import rewrite_snapshot
from .subject import Subject


UNCOMPILED: Final = "looked at in eager code, without torch.compile"

MOST_LINES: Final = 8
"""Lines that are named of all that hold memory at the peak."""

EXPLAINED: Final = (PEAK_ALLOCATED.name, PEAK_REQUESTED.name, PEAK_RESERVED.name)


def explained(
    device: Device,
    subject: Subject,
    measurement: Measurement,
    folder: Path,
    *,
    root: Path,
) -> Measurement:
    """Record one more step of *subject* in *folder* and name what holds most memory.

    The recording names files from *root* on.
    """
    path = folder / f"memory-{file_name(measurement.test)}.pickle"
    if not device.record_allocations(subject.step, subject.arguments(), path):
        return measurement
    snapshot = read_snapshot(path)
    lines = map(_finding, held_at_peak(snapshot)[:MOST_LINES])
    found = replace(
        measurement,
        findings=(
            *measurement.findings,
            *_purposes(device, subject, measurement),
            *lines,
        ),
        snapshot=str(path),
    )
    rewrite_snapshot(path, snapshot, portable_from(root))
    return found


def _purposes(
    device: Device, subject: Subject, measurement: Measurement
) -> Iterator[Finding]:
    """Say what the peak is for, if the step lets itself be looked at: it failed before."""
    try:
        picture = device.picture_memory(subject.step, iter(subject.arguments, None))
    except Exception:  # noqa: BLE001, whatever eager code makes of the step or its memory
        return
    if picture is None:
        return
    if any(compile_counters()):
        peak = peak_of_picture(picture, EXPLAINED)
        yield replace(peak, reason=f"{peak.reason}; {UNCOMPILED}")
    else:
        yield peak_of_picture(_with_unseen(picture, measurement), EXPLAINED)


def _with_unseen(picture: Picture, measurement: Measurement) -> Picture:
    """Add what was measured beyond the bytes of tensors."""
    seen = sum(picture.by_role.values())
    unseen = measurement.exact.get(PEAK_REQUESTED.name, 0) - seen
    if unseen <= 0:
        return picture
    return replace(picture, by_role={**picture.by_role, Role.UNSEEN: unseen})


def _finding(held: Held) -> Finding:
    return Finding(
        kind=FindingKind.MEMORY,
        op=None,
        api=None,
        per_step=held.blocks,
        blocked_ms=0.0,
        location=held.location,
        metrics=EXPLAINED,
        phase=held.phase,
        held_bytes=held.requested_bytes,
    )
