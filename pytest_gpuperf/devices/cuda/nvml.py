"""One GPU as NVIDIA's management library sees it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from ..preflight import ignored


CLOCK_SM: Final = 1
"""``NVML_CLOCK_SM`` of nvml.h."""

THROTTLING: Final[Mapping[int, str]] = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of ``nvmlClocksEventReasons`` in nvml.h that no healthy GPU shows.

The other bits are left out on purpose: the software power cap (0x04) is normal on a
big GPU at full load, and idle, application clocks and sync boost are no fault.
"""

COUNTERS: Final[Mapping[str, str]] = {
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": "software thermal slowdown",
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": "hardware thermal slowdown",
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": "power brake",
}
"""Fields of nvml.h that add up the nanoseconds in which a fault slowed the clocks.

By name: their numbers were others in the headers of some releases.
"""

NO_NEWER_SAMPLE: Final = frozenset({0, 6})
"""``NVML_SUCCESS``, which nvidia-ml-py raises for an empty answer, and
``NVML_ERROR_NOT_FOUND``."""


LONGEST_SAMPLE_US: Final = 1_000_000
"""Time that a sample of the driver is about, at most: 1/6 s on some GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """How busy each process kept the multiprocessors, in percent by process id.

    ``newest_us`` is the time of the newest sample on NVML's clock, 0 without any.
    """

    newest_us: int = 0
    percent: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvml:
    """A GPU or MIG instance; what the driver will not say is ``None`` or empty.

    ``board`` is the physical GPU, to which clocks, power and ECC belong: NVML answers
    those questions for a MIG instance with "not supported".
    """

    pynvml: Any
    instance: Any
    board: Any

    @classmethod
    def open(cls, uuid: str) -> Nvml | None:
        """Find a device by its UUID, with or without prefix.

        By UUID and not by index: NVML's indices ignore ``CUDA_VISIBLE_DEVICES``.
        ``None`` without nvidia-ml-py, without a driver, or for an unknown UUID.
        """
        pynvml = _library()
        if pynvml is None:
            return None
        instance = _find(pynvml, uuid)
        if instance is None:
            return None
        parent = _ask(pynvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance)
        board = instance if parent is None else parent
        return cls(pynvml=pynvml, instance=instance, board=board)

    def name(self) -> str | None:
        """Model of the GPU, with the MIG profile if it is an instance."""
        answer = _ask(self.pynvml, "nvmlDeviceGetName", self.instance)
        return None if answer is None else _text(answer)

    def driver(self) -> str | None:
        """Version of the driver."""
        answer = _ask(self.pynvml, "nvmlSystemGetDriverVersion")
        return None if answer is None else _text(answer)

    def throttling(self) -> tuple[str, ...]:
        """Name the faults that slow the clocks down right now."""
        reasons = _ask_either(
            self.pynvml,
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            self.board,
        )
        return tuple(name for bit, name in THROTTLING.items() if (reasons or 0) & bit)

    def throttled_ns(self) -> dict[str, int]:
        """Time so far in which each fault slowed the clocks, by name, as far as counted."""
        ids = {
            identifier: fault
            for name, fault in COUNTERS.items()
            if (identifier := getattr(self.pynvml, name, None)) is not None
        }
        fields = _ask(self.pynvml, "nvmlDeviceGetFieldValues", self.board, list(ids))
        # Each field has an answer of its own, and an older driver knows some of them.
        return {
            ids[one.fieldId]: int(one.value.ullVal)
            for one in fields or ()
            if one.nvmlReturn == 0 and one.fieldId in ids
        }

    def utilisation(self, since_us: int) -> Utilisation | None:
        """What processes computed by the samples after *since_us*.

        The last one of each process that computed. ``None`` if it does not say, as for
        MIG instances and in some containers.
        """
        ask = getattr(self.pynvml, "nvmlDeviceGetProcessUtilization", None)
        if ask is None:
            return None
        try:
            samples = ask(self.instance, since_us)
        except self.pynvml.NVMLError as error:
            is_quiet = getattr(error, "value", None) in NO_NEWER_SAMPLE
            return Utilisation() if is_quiet else None
        # Some drivers leave entries of their answer empty.
        newer = [one for one in samples if one.pid and one.timeStamp > since_us]
        newest_us = max((one.timeStamp for one in newer), default=0)
        last = [one for one in newer if newest_us - one.timeStamp < LONGEST_SAMPLE_US]
        return Utilisation(
            newest_us=newest_us, percent={one.pid: one.smUtil for one in last}
        )

    def processes(self) -> dict[int, int | None]:
        """Bytes on the GPU by process id, for processes that have a context on it.

        Empty if they cannot be seen. ``None`` as the bytes of a process means that the
        driver hides them (Windows, some containers).
        """
        seen = _ask_either(
            self.pynvml,
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetComputeRunningProcesses_v2",
            self.instance,
        )
        return {process.pid: process.usedGpuMemory for process in seen or ()}

    def sm_mhz(self) -> int | None:
        """Clock of the streaming multiprocessors right now."""
        mhz: int | None = _ask(
            self.pynvml, "nvmlDeviceGetClockInfo", self.board, CLOCK_SM
        )
        return mhz

    def settings(self) -> dict[str, str]:
        """Settings of the board that times depend on, as far as they can be read."""
        milliwatts = _ask(self.pynvml, "nvmlDeviceGetPowerManagementLimit", self.board)
        mhz = _ask(self.pynvml, "nvmlDeviceGetMaxClockInfo", self.board, CLOCK_SM)
        ecc = _ask(self.pynvml, "nvmlDeviceGetEccMode", self.board)
        known = {
            "driver": self.driver(),
            "power limit": milliwatts and f"{milliwatts // 1000} W",
            "max SM clock": mhz and f"{mhz} MHz",
            "ECC": ecc and ("on" if ecc[0] else "off"),
        }
        return {name: value for name, value in known.items() if value}


# What has disturbed a GPU from one look at it to the next.

THROTTLED_SHARE: Final = 0.01
"""Share of the time under a fault from which on times show it."""

BUSY_PERCENT: Final = 1
"""Use of the multiprocessors from which on another process has computed."""


class Watch:
    """Compares what NVML says of a GPU with what it said at the last look.

    *relatives* are this process, those that it comes from and those that come from it;
    *occupy* gives the GPU work for a moment.
    """

    def __init__(
        self,
        nvml: Nvml,
        relatives: Callable[[], Collection[int]],
        occupy: Callable[[], object],
    ) -> None:
        self._nvml = nvml
        self._relatives = relatives
        self._occupy = occupy
        self._looked_ns: int | None = None
        self._throttled_ns: Mapping[str, int] = {}
        self._sampled_us = 0
        self._busy: Collection[int] = ()

    def look(self, now_ns: int) -> str | None:
        """Say what has disturbed the GPU since the last look; now, at the first one."""
        # Both are asked each time, so that both have a beginning for the next look.
        faults, others = self._faults(now_ns), self._computing()
        self._looked_ns = now_ns
        if faults:
            return f"the GPU was throttled by {' and '.join(faults)}"
        if others:
            return f"other processes computed on the GPU (pid {_listed(others)})"
        return None

    def remarks(self) -> tuple[str, ...]:
        """Name who is on the GPU, where the driver does not say whether they compute."""
        if self._nvml.utilisation(self._sampled_us) is not None:
            return ()
        others = self._strangers(self._nvml.processes())
        if not others:
            return ()
        who = f"other processes have the GPU open (pid {_listed(others)})"
        return (f"{who}; the driver does not say here whether they compute",)

    def _faults(self, now_ns: int) -> list[str]:
        counted, before = self._nvml.throttled_ns(), self._throttled_ns
        self._throttled_ns = counted
        if self._looked_ns is None:
            return list(self._nvml.throttling())
        least_ns = THROTTLED_SHARE * (now_ns - self._looked_ns)
        faults = [
            fault
            for fault, ns in counted.items()
            if ns - before.get(fault, ns) > least_ns
        ]
        if len(counted) == len(COUNTERS):
            return faults
        # An idle GPU may say that it is idle, and nothing else.
        self._occupy()
        return list(dict.fromkeys((*faults, *self._nvml.throttling())))

    def _computing(self) -> list[int]:
        seen = self._nvml.utilisation(self._sampled_us)
        if seen is None:
            return []
        # Samples are rarer than looks: until there is a newer one, the last one counts.
        if seen.newest_us:
            self._sampled_us = seen.newest_us
            self._busy = [p for p, used in seen.percent.items() if used >= BUSY_PERCENT]
        return self._strangers(self._busy)

    def _strangers(self, pids: Collection[int]) -> list[int]:
        """Return those of *pids* that are no relatives, if this process is seen at all.

        Where it is not, process ids are those of another namespace (a container), and
        one of the strangers may be ourselves.
        """
        me = os.getpid()
        if not set(pids) - {me} or me not in self._nvml.processes():
            return []
        return sorted(set(pids).difference(self._relatives()))


def _listed(pids: Iterable[int]) -> str:
    return ", ".join(map(str, pids))


def gpu_count() -> int:
    """Return how many GPUs the driver knows, whatever this process may see of them."""
    pynvml = _library()
    return 0 if pynvml is None else int(_ask(pynvml, "nvmlDeviceGetCount") or 0)


def machine_gpus() -> dict[str, str]:
    """Return the GPU models that the driver knows, and its version; empty without any."""
    pynvml = _library()
    if pynvml is None:
        return {}
    count = int(_ask(pynvml, "nvmlDeviceGetCount") or 0)
    found = [_ask(pynvml, "nvmlDeviceGetHandleByIndex", i) for i in range(count)]
    gpus = [
        Nvml(pynvml=pynvml, instance=gpu, board=gpu) for gpu in found if gpu is not None
    ]
    names = sorted({name for name in (gpu.name() for gpu in gpus) if name})
    known = {"name": ", ".join(names), "driver": gpus[0].driver() if gpus else None}
    return {what: value for what, value in known.items() if value}


@cache
def open_nvml(uuid: str) -> Nvml | None:
    """``Nvml.open``, once per process and device."""
    # Cached with its failures: a machine without the library would look for it again at
    # every reading between rounds.
    return Nvml.open(uuid)


def _library() -> Any | None:
    with ignored():  # the package ``pynvml`` warns of itself
        try:
            import pynvml
        except ImportError:
            return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _find(pynvml: Any, uuid: str) -> Any | None:
    """A handle for torch's UUID, which does not say whether it is a MIG instance's."""
    prefixed = uuid.startswith(("GPU-", "MIG-"))
    for candidate in [uuid] if prefixed else [f"GPU-{uuid}", f"MIG-{uuid}"]:
        # as bytes: old releases of nvidia-ml-py take nothing else
        handle = _ask(pynvml, "nvmlDeviceGetHandleByUUID", candidate.encode())
        if handle is not None:
            return handle
    return None


def _ask_either(pynvml: Any, newer: str, older: str, handle: object) -> Any | None:
    """Answer under a function's newer name, else under the one old drivers know."""
    answer = _ask(pynvml, newer, handle)
    return _ask(pynvml, older, handle) if answer is None else answer


def _ask(pynvml: Any, function: str, *arguments: object) -> Any | None:
    """Answer of a library function; ``None`` if it is missing, refused or garbled.

    Some drivers under WSL answer with bytes that are no text.
    """
    ask = getattr(pynvml, function, None)
    if ask is None:
        return None
    # Old releases of nvidia-ml-py lack this class, which is no NVMLError.
    mismatch = getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)
    try:
        return ask(*arguments)
    except (pynvml.NVMLError, mismatch, UnicodeDecodeError):
        return None


def _text(answer: str | bytes) -> str:
    """Text of an answer, which old releases of nvidia-ml-py give as bytes."""
    return answer.decode() if isinstance(answer, bytes) else answer
