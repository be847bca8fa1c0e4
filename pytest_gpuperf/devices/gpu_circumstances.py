"""What of a GPU and its driver measuring depends on, and what can be done about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..model.checkup import Circumstance
from .nvml import Nvml


def gpu_circumstances(torch: Any, nvml: Nvml | None) -> Iterator[Circumstance]:
    """Tell of the current GPU what *torch* and NVML say of it.

    Ask before this process has used it: who is seen on it then is somebody else.
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
    yield _driver(torch, nvml)
    yield from _mig(nvml)
    yield from _persistence(nvml)
    yield from _power(nvml)
    yield from _ecc(nvml)
    yield _clocks(nvml)
    yield from _others(nvml)


def no_gpu(torch: Any) -> Circumstance:
    """Say why there is no GPU to measure on."""
    if torch.version.cuda is None and torch.version.hip is None:
        return Circumstance(
            subject="GPU",
            found=f"absent, torch {torch.__version__} was built without CUDA",
            means="no times, copies and memory of a GPU; syncs are those it would have",
            advice="install another build of torch where there is one",
        )
    return Circumstance(
        subject="GPU",
        found=f"absent, as far as torch {torch.__version__} sees",
        means="no times, copies and memory of a GPU; syncs are those it would have",
        advice="look at nvidia-smi and CUDA_VISIBLE_DEVICES where there should be one",
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


def _driver(torch: Any, nvml: Nvml) -> Circumstance:
    newest, built = nvml.cuda_version(), str(torch.version.cuda)
    reach = f", for CUDA up to {newest[0]}.{newest[1]}" if newest else ""
    found = f"{nvml.driver() or 'unknown'}{reach}; torch has {built}"
    if newest is None or newest >= _numbers(built):
        return Circumstance(subject="driver", found=found)
    return Circumstance(
        subject="driver",
        found=found,
        means="kernels are translated when they are first called, some cannot run",
        advice="upgrade the driver, or install an older torch",
    )


def _mig(nvml: Nvml) -> Iterator[Circumstance]:
    if nvml.is_mig():
        yield Circumstance(
            subject="MIG",
            found="on",
            means="other instances of the board share its power and clocks",
            advice="keep them idle while you measure times",
        )


def _persistence(nvml: Nvml) -> Iterator[Circumstance]:
    if nvml.is_persistent() is False:
        yield Circumstance(
            subject="persistent",
            found="off",
            means="the driver begins anew with each first process, which takes seconds",
            advice="as root: nvidia-smi --persistence-mode=1",
        )


def _power(nvml: Nvml) -> Iterator[Circumstance]:
    limit, usual = nvml.power_watts()
    if limit is not None and usual is not None and limit < usual:
        yield Circumstance(
            subject="power",
            found=f"limited to {limit} W of {usual} W",
            means="heavy steps run at lower clocks than on other boards of the model",
            advice=f"as root: nvidia-smi --power-limit={usual}, or keep it for good",
        )


def _ecc(nvml: Nvml) -> Iterator[Circumstance]:
    setting = nvml.settings().get("ECC")
    if setting:
        yield Circumstance(
            subject="ECC",
            found=setting,
            means="bandwidth and memory depend on it",
            advice="leave it as baselines have it",
        )


def _clocks(nvml: Nvml) -> Circumstance:
    now, most = nvml.sm_mhz(), nvml.settings().get("max SM clock")
    seen = (f"{now} MHz at rest" if now else "", f"at most {most}" if most else "")
    found = ", ".join(filter(None, seen)) or "not to be seen"
    hold = "nvidia-smi --lock-gpu-clocks holds it"
    if os.geteuid() == 0:
        return Circumstance(
            subject="clock",
            found=found,
            means="it moves with load and heat",
            advice=hold,
        )
    return Circumstance(
        subject="clock",
        found=found,
        means="it moves with load and heat, and this user cannot hold it",
        advice=f"let root do so before runs: {hold}",
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


def _numbers(text: str) -> tuple[int, int]:
    """Return 13, 0 of ``13.0``; nothing is older than what cannot be read."""
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return 0, 0
    return int(major), int(minor)
