"""What the fork servers of a comparison import before they fork."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.environment import DeviceKind
from ..runs.fork_server import HEAVY_MODULES


def preload(given: Sequence[str]) -> tuple[str, ...]:
    """Return the modules that every process for these arguments of pytest needs."""
    scripted = f"--gpuperf-device={DeviceKind.SCRIPTED.value}" in given
    return () if scripted else HEAVY_MODULES
