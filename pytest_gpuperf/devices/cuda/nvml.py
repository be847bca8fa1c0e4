"""One GPU as NVIDIA's management library sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from typing import Final


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

    def cuda_version(self) -> tuple[int, int] | None:
        """Newest CUDA that the driver supports: 13, 0."""
        answer = _ask(self.pynvml, "nvmlSystemGetCudaDriverVersion")
        # NVML writes 13.0 as 13000 and 12.4 as 12040.
        return None if answer is None else (answer // 1000, answer % 1000 // 10)

    def is_mig(self) -> bool:
        """Whether the board is split into instances."""
        answer = _ask(self.pynvml, "nvmlDeviceGetMigMode", self.board)
        return bool(answer and answer[0])

    def is_persistent(self) -> bool | None:
        """Whether the driver stays where no process uses the GPU."""
        answer = _ask(self.pynvml, "nvmlDeviceGetPersistenceMode", self.board)
        return None if answer is None else bool(answer)

    def power_watts(self) -> tuple[int | None, int | None]:
        """Power limit of the board, and the one that it came with."""
        limit = _ask(self.pynvml, "nvmlDeviceGetPowerManagementLimit", self.board)
        usual = _ask(
            self.pynvml, "nvmlDeviceGetPowerManagementDefaultLimit", self.board
        )
        # NVML answers in milliwatts; ``None`` passes through.
        return limit and limit // 1000, usual and usual // 1000

    def throttling(self) -> tuple[str, ...]:
        """Name the faults that slow the clocks down right now."""
        reasons = _ask_either(
            self.pynvml,
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            self.board,
        )
        return tuple(name for bit, name in THROTTLING.items() if (reasons or 0) & bit)

    def processes(self) -> dict[int, int | None]:
        """Bytes on the GPU by process id, for processes that compute on it.

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

    def energy_mj(self) -> int | None:
        """Energy of the whole board since the driver was loaded, from Volta on."""
        energy: int | None = _ask(
            self.pynvml, "nvmlDeviceGetTotalEnergyConsumption", self.board
        )
        return energy

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
