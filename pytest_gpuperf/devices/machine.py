"""The devices of this machine, and what times on them depend on, for ``gpuperf doctor``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from ..errors import GpuperfError, PreflightError
from ..model.codec import encode
from ..model.environment import Circumstance, DeviceKind, DeviceSlot, Examination
from . import default_kind, open_device, scripted_device
from .base import Device
from .cuda.device import fingerprint_of
from .cuda.nvml import Nvml, gpu_count, open_nvml
from .process_time import ROOT, granted_cores, text_of, usable_cores


# Settings of a GPU and its driver that measuring depends on, with advice.


def gpu_circumstances(torch: Any, nvml: Nvml | None) -> Iterator[Circumstance]:
    """Describe the current GPU by what *torch* and NVML say of it.

    Call it before this process has used the GPU: then every process on it is another.
    """
    yield _profiler(torch)
    if nvml is None:
        yield Circumstance(
            subject="NVML",
            found="does not know this GPU",
            means="throttling, clocks and other processes on it cannot be seen",
            advice="pip install nvidia-ml-py, and let a container have the driver's "
            "libraries (NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
        )
        return
    yield _clocks(nvml)
    yield from _others(nvml)


def no_gpu(torch: Any) -> Circumstance:
    """Say why there is no GPU to measure on."""
    if torch.version.cuda is None and torch.version.hip is None:
        return Circumstance(
            subject="GPU",
            found=f"absent, torch {torch.__version__} was built without CUDA",
            means="times of a GPU cannot be measured",
            advice="if there is one, install a build of torch with CUDA",
        )
    return Circumstance(
        subject="GPU",
        found=f"absent, as far as torch {torch.__version__} sees",
        means="times of a GPU cannot be measured",
        advice="if there is one, look at nvidia-smi and CUDA_VISIBLE_DEVICES",
    )


def _profiler(torch: Any) -> Circumstance:
    seen = {activity.name for activity in torch.profiler.supported_activities()}
    if "CUDA" in seen:
        return Circumstance(subject="profiler", found="Kineto records GPUs")
    return Circumstance(
        subject="profiler",
        found="Kineto cannot record GPUs",
        means="syncs and copies cannot be counted",
        advice="install a build of torch with CUPTI, as those of pytorch.org",
    )


def _clocks(nvml: Nvml) -> Circumstance:
    now, most = nvml.sm_mhz(), nvml.settings().get("max SM clock")
    seen = (f"{now} MHz at rest" if now else "", f"at most {most}" if most else "")
    found = ", ".join(filter(None, seen)) or "not to be seen"
    advice = "nvidia-smi --lock-gpu-clocks fixes it"
    if os.geteuid() == 0:
        return Circumstance(
            subject="clock",
            found=found,
            means="it moves with load and heat",
            advice=advice,
        )
    return Circumstance(
        subject="clock",
        found=found,
        means="it moves with load and heat, and this user cannot hold it",
        advice=f"let root do so before runs: {advice}",
    )


def _others(nvml: Nvml) -> Iterator[Circumstance]:
    pids = sorted(set(nvml.processes()) - {os.getpid()})
    if pids:
        yield Circumstance(
            subject="processes",
            found=f"others are on the GPU (pid {', '.join(map(str, pids))})",
            means="what they compute makes times inconclusive",
            advice="end them, or choose another GPU with CUDA_VISIBLE_DEVICES",
        )


CPUS: Final = "sys/devices/system/cpu"
"""Linux: a folder a core, with the governor of its clock."""

STEADY_GOVERNOR: Final = "performance"
"""The governor that keeps a core at its highest clock."""

BUSY_LOAD: Final = 0.5
"""Load a core from which on other programs are in the way more often than not."""


def host_circumstances(gpus: int, root: Path = ROOT) -> Iterator[Circumstance]:
    """Describe the cores, their clocks, and who else uses them.

    The data loaders of *gpus* share the cores. Files are those below *root*.
    """
    cores = usable_cores()
    share = granted_cores(root)
    yield _cores(cores, share)
    yield _workers(min(cores, int(share) or 1) if share else cores, max(gpus, 1))
    yield _governor(root)
    yield _load(cores)


def _cores(cores: int, share: float | None) -> Circumstance:
    if share is None or share >= cores:
        return Circumstance(subject="cores", found=f"{cores} may be used, all the time")
    return Circumstance(
        subject="cores",
        found=f"{cores} may be used, {share:g} of them all the time",
        means="the container stops what used its share, in the midst of a step",
        advice="give it whole cores (docker run --cpuset-cpus) and no quota (--cpus)",
    )


def _workers(cores: int, gpus: int) -> Circumstance:
    each = max(cores // gpus, 1)
    scope = "a GPU" if gpus > 1 else "in all"
    return Circumstance(
        subject="workers",
        found=f"{cores} core{'s' if cores > 1 else ''}, {gpus} "
        f"device{'s' if gpus > 1 else ''}",
        means=f"more than {each} workers of data loaders {scope} wait for each other",
        advice=f"begin with DataLoader(num_workers={each})",
    )


def _governor(root: Path) -> Circumstance:
    files = (root / CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor")
    found = sorted(set(filter(None, map(text_of, files))))
    if not found:
        return Circumstance(
            subject="governor",
            found="not to be seen, as in most containers and virtual machines",
            means="whether the cores' clocks move is not known",
        )
    if found == [STEADY_GOVERNOR]:
        return Circumstance(subject="governor", found=STEADY_GOVERNOR)
    return Circumstance(
        subject="governor",
        found=", ".join(found),
        means="the cores' clocks follow the load, and times with them",
        advice=f"as root: cpupower frequency-set --governor {STEADY_GOVERNOR}",
    )


def _load(cores: int) -> Circumstance:
    load = os.getloadavg()[0]
    found = f"{load:.1f} on {cores} core{'s' if cores > 1 else ''}"
    if load < BUSY_LOAD * cores:
        return Circumstance(subject="load", found=found)
    return Circumstance(
        subject="load",
        found=found,
        means="other programs want the same cores",
        advice="measure when they have ended, or give the runner cores of its own",
    )


# All that measuring on this machine depends on.


def circumstances_of(kind: DeviceKind) -> Iterator[Circumstance]:
    """Describe what this machine has for a real device of that *kind*."""
    if kind is DeviceKind.SCRIPTED:
        return
    import torch

    if torch.cuda.is_available():
        board = torch.cuda.get_device_properties(torch.cuda.current_device())
        yield from gpu_circumstances(torch, open_nvml(str(board.uuid)))
    else:
        yield no_gpu(torch)
    yield from host_circumstances(torch.cuda.device_count())


# What a measuring process does for the command.


def examine(request: Mapping[str, Any]) -> dict[str, Any]:
    """Look at the device and run nothing on it; a usage error is an answer too."""
    kind = request["device"]
    try:
        device = open_device(
            DeviceKind(kind) if kind else default_kind(), request["script"]
        )
        found = Examination(
            environment=device.environment(),
            unmeasured=device.unmeasurable,
            refusal=_refusal(device),
            disturbance=device.disturbance(),
            circumstances=tuple(circumstances_of(device.kind)),
        )
    except GpuperfError as error:
        return {"error": str(error)}
    return {"examination": encode(found)}


def _refusal(device: Device) -> str | None:
    try:
        device.preflight()
    except PreflightError as error:
        return str(error)
    return None


# The devices that this process was given to measure on.

VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"

HIP_DEVICES: Final = "HIP_VISIBLE_DEVICES"
"""On ROCm this one is obeyed where both are set."""

MIG: Final = "MIG-"
"""A process sees one MIG instance, however many its list names."""


def slots_of(kind: DeviceKind, script: str | None) -> tuple[DeviceSlot, ...]:
    """Return where tests can be measured; initialises CUDA."""
    if kind is DeviceKind.CUDA:
        import torch

        return cuda_slots(torch.cuda, obeyed(torch, os.environ))
    if kind is DeviceKind.CPU:
        return (DeviceSlot(lock="cpu"),)
    if kind is DeviceKind.SCRIPTED and script is not None:
        slots: tuple[DeviceSlot, ...] = scripted_device().read(script, run=0).slots()
        return slots
    return (DeviceSlot(),)


def cuda_slots(cuda: Any, visible: str | None) -> tuple[DeviceSlot, ...]:
    """Return a slot per GPU of the first one's model, by its place in *visible*.

    Another model has a baseline of its own: it is not measured on together with this one.
    """
    named = entries_of(visible)
    if named and named[0].startswith(MIG):
        return tuple(DeviceSlot(visible=entry, lock=entry) for entry in named)
    found = tuple(_like_the_first(cuda, named))
    return (
        found
        if len(found) > 1
        else (DeviceSlot(lock=found[0].lock, board=found[0].board),)
    )


def visible_gpu_count(visible: str | None) -> int:
    """Return how many GPUs *visible* leaves to see; CUDA is not touched."""
    return gpu_count() if visible is None else len(entries_of(visible))


def entries_of(visible: str | None) -> list[str]:
    """Name the GPUs that *visible*, the value of ``CUDA_VISIBLE_DEVICES``, lists.

    As CUDA does, it stops at the first entry that can be none: ``-1``, or nothing.
    """
    entries = (entry.strip() for entry in (visible or "").split(","))
    return list(takewhile(lambda entry: entry and not entry.startswith("-"), entries))


def obeyed(torch: Any, environ: Mapping[str, str]) -> str | None:
    """Return the list of GPUs that *torch* obeys, ``None`` if it sees all of them."""
    visible = environ.get(VISIBLE_DEVICES)
    return environ.get(HIP_DEVICES, visible) if torch.version.hip else visible


def seeing(entry: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that is to see the GPU of *entry* alone."""
    names = [VISIBLE_DEVICES, *([HIP_DEVICES] if HIP_DEVICES in environ else [])]
    return dict.fromkeys(names, entry)


def _like_the_first(cuda: Any, named: Sequence[str]) -> Iterator[DeviceSlot]:
    model = cuda.get_device_name(0)
    for index in range(cuda.device_count()):
        if cuda.get_device_name(index) == model:
            uuid = str(cuda.get_device_properties(index).uuid)
            yield DeviceSlot(
                visible=named[index] if named else str(index),
                lock=f"GPU-{uuid.removeprefix('GPU-')}",
                board=fingerprint_of(uuid),
            )
