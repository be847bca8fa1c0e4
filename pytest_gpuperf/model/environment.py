"""The hardware and software of a measurement, and what a check of the machine finds.

The hardware is the key of a baseline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


# A place to measure at: one GPU, or the machine's cores.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlot:
    """One device that one process at a time is measured on.

    ``visible`` is its entry in ``CUDA_VISIBLE_DEVICES``, ``None`` if nothing needs
    hiding. ``lock`` names it among all runs on this machine, ``None`` if nobody can
    be in the way. ``board`` is the fingerprint that baselines know a GPU by.
    """

    visible: str | None = None
    lock: str | None = None
    board: str | None = None


SIMULATED_GIB: Final = 80.0
"""Memory of the simulated GPU by default."""


class Capability(Enum):
    """What a kind of device can do or has.

    Code asks for it instead of naming the kinds, so that a new kind is one more row of
    ``CAPABILITIES``.
    """

    CLOCK = "clock"
    """Steps are timed, and their times scatter."""
    GPU_TIMES = "gpu times"
    """The times are those of a GPU: a time budget that names no device binds."""
    PROFILER = "profiler"
    """Steps run under torch.profiler, which writes a trace."""
    KERNELS = "kernels"
    """Steps run as kernels, which a trace shows apart from the host."""
    QUEUES = "queues"
    """A call enqueues work and returns: the host runs ahead of the device."""
    HOST_WORK = "host work"
    """Threads of this process do the work of a step, in its memory."""
    ALLOCATOR = "allocator"
    """Its allocator can record what it does in a step."""
    RANKS = "ranks"
    """Several processes can measure one test together."""
    FORECAST = "forecast"
    """It predicts what a GPU would do, on a machine that needs none."""


OLD_SIMULATED: Final = "pretend"
"""What 0.2.0 called the simulated GPU, in options, files and their names."""


class DeviceKind(Enum):
    """The kinds of device a step can be measured on."""

    CUDA = "cuda"
    SIMULATED = "simulated"
    CPU = "cpu"
    SCRIPTED = "scripted"

    @classmethod
    def _missing_(cls, value: object) -> DeviceKind | None:
        """Take the name that the simulated GPU had until 0.2.0."""
        return cls.SIMULATED if value == OLD_SIMULATED else None

    def has(self, capability: Capability) -> bool:
        """Whether every device of this kind has *capability*."""
        return capability in CAPABILITIES[self]


_MEASURED: Final = frozenset({Capability.CLOCK, Capability.PROFILER, Capability.RANKS})
"""What each device has that runs steps and watches them."""

CAPABILITIES: Final[Mapping[DeviceKind, frozenset[Capability]]] = {
    DeviceKind.CUDA: _MEASURED
    | {
        Capability.GPU_TIMES,
        Capability.KERNELS,
        Capability.QUEUES,
        Capability.ALLOCATOR,
    },
    DeviceKind.SIMULATED: frozenset({Capability.FORECAST}),
    DeviceKind.CPU: _MEASURED | {Capability.HOST_WORK},
    # It plays the times and the memory of a GPU, and the trace of a host.
    DeviceKind.SCRIPTED: _MEASURED | {Capability.GPU_TIMES, Capability.ALLOCATOR},
}
"""The capabilities of each kind of device."""


DEVICE_WORDS: Final[Mapping[DeviceKind, str]] = {
    DeviceKind.CUDA: "{name}",
    DeviceKind.SIMULATED: "simulated GPU",
    DeviceKind.CPU: "CPU {name}",
    DeviceKind.SCRIPTED: "scripted {name}",
}
"""What people read in place of a kind of device and the model's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The hardware a baseline belongs to: a kind and the model's name."""

    kind: DeviceKind
    name: str

    @property
    def key(self) -> str:
        """File name of this hardware's baselines: ``cuda-nvidia-h200``."""
        # Part of a file name that is committed: no blanks, and no difference in case.
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"{self.kind.value}-{slug}" if slug else self.kind.value

    @property
    def old_key(self) -> str:
        """The key that 0.2.0 used."""
        return self.key.replace(DeviceKind.SIMULATED.value, OLD_SIMULATED)

    @property
    def names(self) -> tuple[str, ...]:
        """What a budget may call it, also as in 0.2.0."""
        kind, old = self.kind.value, self.old_key.partition("-")[0]
        return (kind, self.name, self.key, old, self.old_key)

    @property
    def in_words(self) -> str:
        """What a person calls it: ``NVIDIA H200``, ``simulated GPU``, ``CPU AMD EPYC``."""
        return DEVICE_WORDS[self.kind].format(name=self.name).strip()


SIMULATED_GPU: Final = Hardware(kind=DeviceKind.SIMULATED, name="CUDA")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Hardware, and the software versions and settings recorded with it."""

    hardware: Hardware
    software: Mapping[str, str] = field(default_factory=dict)


# What one side of a comparison imports in place of what is installed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What comes before the user's packages on a side's path, and what is hidden there.

    ``hidden`` are names of modules, ``without`` of their packages. ``changes`` say for
    each package what it was and is.
    """

    path: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


AS_INSTALLED: Final = Overlay()


# Findings about a machine before any test is measured on it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstance:
    """Something that measuring depends on: what it ``means``, and what could be done.

    Both are empty if all is well.
    """

    subject: str
    found: str
    means: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """A device at rest.

    ``unmeasured`` says per metric why the device has no number, ``refusal`` why no
    honest number can be read at all.
    """

    environment: Environment
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None
    disturbance: str | None = None
    circumstances: tuple[Circumstance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One of ``count`` processes that torchrun started on ``machines`` machines.

    ``local_rank`` counts those of its machine. Their store is at ``host`` and ``port``;
    ``attempt`` tells restarts apart that have one store. They wait ``patience_s`` for
    each other before a test.
    """

    rank: int
    count: int
    local_rank: int
    machines: int
    host: str
    port: int
    attempt: str
    patience_s: float
