"""Everything an enabled run was told, resolved once."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Final

from .model.budget import Tolerance
from .model.environment import PRETEND_GIB
from .model.environment import DeviceKind
from .model.launch import Launch
from .model.refresh import Refresh


ARTEFACTS: Final = ".gpuperf"
"""Folder in the project for what a run leaves; git ignores it."""

RECORDED: Final = "baseline"
"""Of a reference: the commit at which each baseline was recorded."""


class MissingBaseline(Enum):
    """What happens where a gated metric has neither budget nor baseline."""

    WARN = "warn"
    FAIL = "fail"
    EVERY_METRIC = "every-metric"


class Isolation(Enum):
    """What shares one fresh process: each test alone, or the tests of a module."""

    TEST = "test"
    MODULE = "module"


class SharedUse(Enum):
    """Who holds a device's lock: what is timed on it, or every test that may use it."""

    TIMED = "timed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options and ini keys of one enabled run. ``device`` is ``None`` for the default.

    ``tolerance`` holds where no mark names one. ``precision`` is the slowdown, a ratio,
    that is to be seen. ``benchmark`` asks to feed pytest-benchmark. ``reference`` names
    the commit that settles what a baseline does not pass, or is ``RECORDED``. ``launch``
    is which of torchrun's ranks this is.

    ``seconds`` caps what one test may cost, ``lock_seconds`` what it may wait for a
    device that another run measures on; ``artefacts`` is the ignored folder for
    pending baselines, ``baselines`` the committed one, ``history`` the folder or URL
    that each run leaves a file in.
    """

    device: DeviceKind | None
    update: Refresh | None
    seconds: float
    inline: bool
    strict: bool
    missing_baseline: MissingBaseline
    isolation: Isolation
    baselines: Path
    artefacts: Path
    fail_on_improvement: bool = False
    explain: bool = False
    accept_drift: bool = False
    benchmark: bool = False
    prune: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)
    precision: float | None = None
    reference: str | None = None
    script: str | None = None
    lock_seconds: float = 3600.0
    shared_use: SharedUse = SharedUse.TIMED
    history: str | None = None
    pretend_gib: float = PRETEND_GIB
    launch: Launch | None = None

    def note_on(self, kind: DeviceKind) -> str:
        """Say what a run on the device that nobody named does not judge."""
        if self.device is None and kind is DeviceKind.PRETEND:
            return "no CUDA device here: memory is predicted, no times"
        return ""
