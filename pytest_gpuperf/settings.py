"""The settings of one run, and what a CI job is refused unless it asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from .errors import ErrorId, UsageError
from .model.baseline import Refresh
from .model.budget import Tolerance
from .model.environment import SIMULATED_GIB, Capability, DeviceKind, Launch


ALLOWANCE: Final = "GPUPERF_ALLOW_CI_UPDATE"
"""Variable with which a job may move the baselines."""


def is_ci(environ: Mapping[str, str]) -> bool:
    """Whether this is a job of continuous integration."""
    return bool(environ.get("CI"))


def refuse_in_ci(asked: str, verb: str, environ: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if *asked* would let a gate move its own baseline.

    *verb* is what to do on a developer's machine instead.
    """
    if is_ci(environ) and not environ.get(ALLOWANCE):
        msg = (
            f"{asked} was asked for, but CI is set and a gate must not move its own "
            f"baseline: {verb} on a developer's machine, or set {ALLOWANCE}=1 in a "
            "job for refreshing"
        )
        raise UsageError(msg, ErrorId.GP104)


# The settings of an enabled run, resolved once.

ARTEFACTS: Final = ".gpuperf"
"""Folder in the project for what a run leaves; git ignores it."""

FOREVER: Final = "forever"
"""Failures are warnings without a last day."""


class MissingBaseline(Enum):
    """What happens if a gated metric has neither budget nor baseline."""

    WARN = "warn"
    FAIL = "fail"
    EVERY_METRIC = "every-metric"


class UncheckedBudget(Enum):
    """What happens if no run measured what a budget limits on a device that can."""

    WARN = "warn"
    FAIL = "fail"


class Isolation(Enum):
    """What shares one fresh process: each test alone, or the tests of a module."""

    TEST = "test"
    MODULE = "module"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options and ini keys of one enabled run. ``device`` is ``None`` for the default.

    ``tolerance`` applies to tests without a mark of their own. ``seed`` says
    where random numbers begin. ``benchmark`` asks to feed pytest-benchmark.
    ``launch`` is which of torchrun's ranks this is. ``repeated`` are the options of this
    command line that a command to refresh or compare must repeat, ``stored_on`` the
    devices that have baselines of the tests that a refresh names without a device.

    ``seconds`` caps what one test may cost; ``artefacts`` is the ignored folder for
    pending baselines, ``baselines`` the committed one. Failures are warnings if ``warn``
    is ``FOREVER`` or a last day that is not before ``today``, which is that of this run.
    """

    device: DeviceKind | None = None
    update: Refresh | None = None
    seconds: float = 60.0
    strict: bool = False
    missing_baseline: MissingBaseline = MissingBaseline.WARN
    isolation: Isolation = Isolation.TEST
    baselines: Path = Path("baselines")
    artefacts: Path = Path(ARTEFACTS)
    explain: bool = False
    accept_drift: bool = False
    benchmark: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)
    seed: int = 0
    script: str | None = None
    simulated_gib: float = SIMULATED_GIB
    unchecked_budget: UncheckedBudget = UncheckedBudget.WARN
    launch: Launch | None = None
    repeated: tuple[str, ...] = ()
    stored_on: tuple[DeviceKind, ...] = ()
    warn: str = ""
    today: str = ""

    @property
    def prunes(self) -> bool:
        """Whether baselines of tests that are gone are removed."""
        return self.update is Refresh.ALL

    @property
    def warns(self) -> bool:
        """Whether what fails a test by a verdict is a warning."""
        return self.warn == FOREVER or (bool(self.warn) and self.today <= self.warn)

    @property
    def warning_note(self) -> str:
        """Say until when failures are warnings, or that they are none again."""
        if self.warns:
            until = "" if self.warn == FOREVER else f" until {self.warn}"
            return f"failures are warnings{until}"
        return f"gpuperf_warn ended on {self.warn}: remove it" if self.warn else ""

    def note_on(self, kind: DeviceKind) -> str:
        """Say what a run on the device that nobody named does not judge, or only warns of."""
        is_forecast = self.device is None and kind.has(Capability.FORECAST)
        device = (
            "no CUDA device here: memory is predicted, no times" if is_forecast else ""
        )
        return "; ".join(filter(None, (device, self.warning_note)))
