"""Decides whether a predicted peak fits a GPU, within the error of the prediction."""

from __future__ import annotations

from typing import Final

from ..model.forecast import Fit
from ..model.forecast import Forecast


GIB: Final = 2**30

ALLOCATED_ERROR: Final = 0.05
"""Two recordings were off by 0.05 % and 0.03 %; they are of one family of models."""

RESERVED_ERROR: Final = 0.10
"""The same two were off by 0.2 % and 0.5 %; fragmentation depends on more."""

CONTEXT_BYTES: Final = GIB * 3 // 4
"""What the CUDA context and libraries take beside the allocator: the gap between the
published memory of that ladder and its recorded reserved bytes, 740 to 776 MiB."""


def fit_of(forecast: Forecast, gib: float) -> Fit:
    """Judge *forecast* against a GPU with *gib* GiB (2**30 bytes) of memory.

    It fits with all that the allocator would like to reserve; without room for what is
    allocated at once it does not. Between them a GPU must tell.
    """
    if forecast.not_judged:
        return Fit.UNKNOWN
    room = gib * GIB - CONTEXT_BYTES
    if forecast.reserved_bytes * (1 + RESERVED_ERROR) <= room:
        return Fit.FITS
    if forecast.allocated_bytes * (1 - ALLOCATED_ERROR) > room:
        return Fit.TOO_LARGE
    return Fit.TOO_CLOSE
