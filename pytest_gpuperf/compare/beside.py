"""Memory that the other side holds while one is measured: an allocator tells them not apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..devices.protocol import Device
from ..model.measurement import Measurement
from ..model.memory_metric import PEAK_ALLOCATED
from ..model.memory_metric import PEAK_REQUESTED
from ..model.memory_metric import PEAK_RESERVED
from ..probes.subject import Subject
from .reach import addresses_of


SHARED_CACHE: Final = (
    "both sides share the cache of the allocator: measure the step by itself, with "
    "gpuperf(step)"
)


def of_one_side(
    device: Device, measurement: Measurement, own: Subject, other: Subject
) -> Measurement:
    """Take out of *measurement*, of *own*, what only *other* holds between its steps.

    That is found as ``reach`` finds it: what neither is seen to hold counts for both.
    """
    lent = device.blocks()
    if not lent or PEAK_ALLOCATED.name not in measurement.exact:
        return measurement
    beside = addresses_of(other.step, other.setup) - addresses_of(own.step, own.setup)
    held = [lent[address] for address in beside if address in lent]
    exact = dict(measurement.exact)
    exact[PEAK_ALLOCATED.name] -= sum(block.allocated_bytes for block in held)
    if PEAK_REQUESTED.name in exact:
        exact[PEAK_REQUESTED.name] -= sum(block.requested_bytes for block in held)
    exact.pop(PEAK_RESERVED.name, None)
    return replace(
        measurement,
        exact=exact,
        unmeasured={**measurement.unmeasured, PEAK_RESERVED.name: SHARED_CACHE},
    )
