"""One call of ``gpuperf(step)``, measured as its device and its run ask."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .devices.pretend.device import PretendDevice
from .devices.protocol import Device
from .model.measurement import Measurement
from .probes.following import Follow
from .probes.following import nobody
from .probes.subject import Subject
from .ranked.agreed_device import AgreedDevice


if TYPE_CHECKING:
    from .probes.phases import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefacts:
    """What a run records beside its numbers: folders, ``None`` for what it does not.

    ``recordings`` is for what the allocator did. A run with ``traces`` measures nothing:
    it only traces.
    """

    recordings: Path | None = None
    traces: Path | None = None


def measured_call(  # noqa: PLR0913  a call, and what is to be known of it
    device: Device | PretendDevice,
    subject: Subject,
    *,
    test: str,
    seconds: float,
    artefacts: Artefacts,
    root: Path,
    follow: Follow = nobody,
) -> Measured:
    """Measure *subject*, or trace it; raises what the phases of its device raise."""
    if isinstance(device, PretendDevice):
        from .probes.audit import audit

        return audit(device, subject, test=test, seconds=seconds)
    if isinstance(device, AgreedDevice):
        from .ranked.measured import measure_ranked

        return measure_ranked(device, subject, test=test, seconds=seconds)
    if artefacts.traces is not None:
        from .probes.traced import traced

        return traced(
            device,
            subject,
            test=test,
            seconds=seconds,
            folder=artefacts.traces,
            root=root,
        )
    from .probes.phases import measure

    found = measure(device, subject, test=test, seconds=seconds, follow=follow)
    return replace(
        found,
        measurement=_explained(
            device, subject, found.measurement, artefacts.recordings, root
        ),
    )


def _explained(
    device: Device,
    subject: Subject,
    measurement: Measurement,
    recordings: Path | None,
    root: Path,
) -> Measurement:
    """Add what a step did with memory, where this run is to record that."""
    if recordings is None:
        return measurement
    from .probes.recorded import explained

    return explained(device, subject, measurement, recordings, root=root)
