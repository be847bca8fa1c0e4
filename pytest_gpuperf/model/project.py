"""What a project says of itself once, for every command."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field

from .budget import Tolerance
from .environment import DeviceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """Settings of ``pytest --gpuperf`` in a folder, as its ini file has them.

    Folders are paths as the command may use them, ``history`` a folder or a URL.
    """

    device: DeviceKind | None
    baselines: str
    artefacts: str
    history: str | None
    lock_seconds: float
    tolerance: Tolerance = field(default_factory=Tolerance)
    precision: float | None = None
