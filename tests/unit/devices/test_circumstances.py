"""What measuring depends on: each fact, what it means, what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpuperf.devices import machine as host
from pytest_gpuperf.devices.cuda.nvml import Nvml
from pytest_gpuperf.devices.machine import gpu_circumstances, no_gpu
from pytest_gpuperf.model.environment import Circumstance


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores with nothing to do."""
    monkeypatch.setattr(host, "usable_cores", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.31, 0.0, 0.0))


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def said(root: Path, gpus: int = 1) -> dict[str, Circumstance]:
    return {one.subject: one for one in host.host_circumstances(gpus, root)}


@pytest.mark.usefixtures("calm")
def test_a_quiet_host_has_nothing_to_complain_of(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
            "sys/fs/cgroup/cpu.max": "max 100000",
        },
    )

    found = said(tmp_path)

    advised = found.pop("workers")
    assert advised == Circumstance(
        subject="workers",
        found="8 cores, 1 device",
        means="more than 8 workers of data loaders in all wait for each other",
        advice="begin with DataLoader(num_workers=8)",
    )
    assert list(found.values()) == [
        Circumstance(subject="cores", found="8 may be used, all the time"),
        Circumstance(subject="governor", found="performance"),
        Circumstance(subject="load", found="0.3 on 8 cores"),
    ]


@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/cpu.max": "250000 100000"},
        {
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
)
def test_a_container_that_has_a_share_of_the_cores(
    tmp_path: Path, files: dict[str, str]
) -> None:
    write(tmp_path, files)

    found = said(tmp_path, gpus=2)

    assert found["cores"] == Circumstance(
        subject="cores",
        found="8 may be used, 2.5 of them all the time",
        means="the container stops what used its share, in the midst of a step",
        advice="give it whole cores (docker run --cpuset-cpus) and no quota (--cpus)",
    )
    assert found["workers"] == Circumstance(
        subject="workers",
        found="2 cores, 2 devices",
        means="more than 1 workers of data loaders a GPU wait for each other",
        advice="begin with DataLoader(num_workers=1)",
    )


@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize("quota", ["-1", "max", "0 0", "none at all", ""])
def test_no_quota_is_no_share(tmp_path: Path, quota: str) -> None:
    write(tmp_path, {"sys/fs/cgroup/cpu.max": quota})

    assert said(tmp_path)["cores"].found == "8 may be used, all the time"


@pytest.mark.usefixtures("calm")
def test_clocks_that_follow_the_load(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
        },
    )

    found = said(tmp_path)

    assert found["governor"] == Circumstance(
        subject="governor",
        found="performance, powersave",
        means="the cores' clocks follow the load, and times with them",
        advice="as root: cpupower frequency-set --governor performance",
    )


@pytest.mark.usefixtures("calm")
def test_a_governor_that_is_hidden(tmp_path: Path) -> None:
    assert said(tmp_path)["governor"] == Circumstance(
        subject="governor",
        found="not to be seen, as in most containers and virtual machines",
        means="whether the cores' clocks move is not known",
    )


@pytest.mark.usefixtures("calm")
def test_a_busy_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0, 0.0, 0.0))

    assert said(tmp_path)["load"] == Circumstance(
        subject="load",
        found="4.0 on 8 cores",
        means="other programs want the same cores",
        advice="measure when they have ended, or give the runner cores of its own",
    )


class NVMLError(Exception):
    """Stands for every refusal of the driver."""


def fake_torch(cuda: str | None = "13.0", *activities: str) -> Any:
    known = [SimpleNamespace(name=name) for name in activities or ("CPU", "CUDA")]
    return SimpleNamespace(
        __version__="2.11.0",
        version=SimpleNamespace(cuda=cuda, hip=None),
        profiler=SimpleNamespace(supported_activities=lambda: known),
    )


def fake_nvml(**answers: object) -> Nvml:
    """A GPU that answers so; what is not named is refused."""

    def answer(value: object) -> Any:
        return lambda *_: value

    functions = {name: answer(value) for name, value in answers.items()}
    library = SimpleNamespace(NVMLError=NVMLError, **functions)
    return Nvml(pynvml=library, instance=b"GPU-1", board=b"GPU-1")


HEALTHY = {
    "nvmlDeviceGetClockInfo": 345,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetComputeRunningProcesses": [],
}


def test_a_healthy_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert list(gpu_circumstances(fake_torch(), fake_nvml(**HEALTHY))) == [
        Circumstance(subject="profiler", found="Kineto records GPUs"),
        Circumstance(
            subject="clock",
            found="345 MHz at rest, at most 1980 MHz",
            means="it moves with load and heat",
            advice="nvidia-smi --lock-gpu-clocks fixes it",
        ),
    ]


def test_other_processes_on_a_gpu() -> None:
    both = [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in (9, 7)]
    nvml = fake_nvml(**HEALTHY | {"nvmlDeviceGetComputeRunningProcesses": both})

    assert [*gpu_circumstances(fake_torch(), nvml)][-1] == Circumstance(
        subject="processes",
        found="others are on the GPU (pid 7, 9)",
        means="what they compute makes times inconclusive",
        advice="end them, or choose another GPU with CUDA_VISIBLE_DEVICES",
    )


def test_who_is_not_root_cannot_hold_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    found = list(gpu_circumstances(fake_torch(), fake_nvml()))

    assert found[1:] == [
        Circumstance(
            subject="clock",
            found="not to be seen",
            means="it moves with load and heat, and this user cannot hold it",
            advice="let root do so before runs: nvidia-smi --lock-gpu-clocks fixes it",
        ),
    ]


def test_a_gpu_that_nvml_does_not_know() -> None:
    found = list(gpu_circumstances(fake_torch("12.8", "CPU"), None))

    assert found == [
        Circumstance(
            subject="profiler",
            found="Kineto cannot record GPUs",
            means="syncs and copies cannot be counted",
            advice="install a build of torch with CUPTI, as those of pytorch.org",
        ),
        Circumstance(
            subject="NVML",
            found="does not know this GPU",
            means="throttling, clocks and other processes on it cannot be seen",
            advice="pip install nvidia-ml-py, and let a container have the driver's "
            "libraries (NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
        ),
    ]


@pytest.mark.parametrize(
    ("cuda", "found"),
    [
        (None, "absent, torch 2.11.0 was built without CUDA"),
        ("13.0", "absent, as far as torch 2.11.0 sees"),
    ],
)
def test_no_gpu_has_a_reason(cuda: str | None, found: str) -> None:
    assert no_gpu(fake_torch(cuda)).found == found
