"""Every phase of a measurement, by all ranks in step with each other."""

from __future__ import annotations

from dataclasses import replace

from ..probes.communication import find_communication
from ..probes.phases import Measured
from ..probes.phases import measure
from ..probes.subject import Subject
from .agreed_device import AgreedDevice
from .joined import Share
from .joined import joined


def measure_ranked(
    device: AgreedDevice, subject: Subject, *, test: str, seconds: float
) -> Measured:
    """Measure *subject* on every rank; all of them return the same measurement.

    Raises ``PreflightError``, ``StepError`` and whatever the step raises.
    """
    from .collectives import count_collectives

    measured = measure(device, subject, test=test, seconds=seconds)
    own = measured.measurement
    collectives = () if own.missed else count_collectives(subject)
    device.synchronize()
    share = Share(
        measurement=own,
        collectives=collectives,
        communication=find_communication(device.trace),
    )
    shares = device.peers.objects(share)
    together = joined(shares, device.rounds_ns, device.peak_bytes)
    return replace(measured, measurement=together)
