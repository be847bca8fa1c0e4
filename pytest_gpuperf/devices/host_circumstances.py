"""What of the host times depend on, and what can be done about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ..model.checkup import Circumstance
from .cpu import usable_cores


ROOT: Final = Path("/")

CPUS: Final = "sys/devices/system/cpu"
"""Linux: a folder a core, with the governor of its clock."""

STEADY: Final = "performance"
"""The governor that holds a core at its highest clock."""

BUSY: Final = 0.5
"""Load a core from which on other programs are in the way more often than not."""

TOOLS: Final = {
    "pytest": (8, 1),
    "pytest-xdist": (3, 5),
    "pytest-benchmark": (5,),
    "nvidia-ml-py": (),
}
"""What is used beside torch, and the oldest version of it that is tested."""


def host_circumstances(gpus: int, root: Path = ROOT) -> Iterator[Circumstance]:
    """Tell of cores, their clocks, who else uses them, and what is installed.

    The data loaders of *gpus* share the cores. Files are those below *root*.
    """
    cores = usable_cores()
    share = _share(root)
    yield _cores(cores, share)
    yield _workers(min(cores, int(share) or 1) if share else cores, max(gpus, 1))
    yield _governor(root)
    yield from _boost(root)
    yield _load(cores)
    yield _tools()


def _cores(cores: int, share: float | None) -> Circumstance:
    if share is None or share >= cores:
        return Circumstance(subject="cores", found=f"{cores} may be used, all the time")
    return Circumstance(
        subject="cores",
        found=f"{cores} may be used, {share:g} of them all the time",
        means="the container stops what used its share, in the midst of a step",
        advice="give it whole cores (docker run --cpuset-cpus) and no quota (--cpus)",
    )


def _share(root: Path) -> float | None:
    """Return the cores that a control group grants, version 2 and then 1."""
    quota, _, period = _text(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        group = root / "sys/fs/cgroup/cpu"
        quota = _text(group / "cpu.cfs_quota_us")
        period = _text(group / "cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def _workers(cores: int, gpus: int) -> Circumstance:
    each = max(cores // gpus, 1)
    whose = "a GPU" if gpus > 1 else "in all"
    return Circumstance(
        subject="workers",
        found=f"{cores} core{'s' if cores > 1 else ''}, {gpus} "
        f"device{'s' if gpus > 1 else ''}",
        means=f"more than {each} workers of data loaders {whose} wait for each other",
        advice=f"begin with DataLoader(num_workers={each})",
    )


def _governor(root: Path) -> Circumstance:
    files = (root / CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor")
    found = sorted(set(filter(None, map(_text, files))))
    if not found:
        return Circumstance(
            subject="governor",
            found="not to be seen, as in most containers and virtual machines",
            means="whether the cores' clocks move is not known",
        )
    if found == [STEADY]:
        return Circumstance(subject="governor", found=STEADY)
    return Circumstance(
        subject="governor",
        found=", ".join(found),
        means="the cores' clocks follow the load, and times with them",
        advice=f"as root: cpupower frequency-set --governor {STEADY}",
    )


def _boost(root: Path) -> Iterator[Circumstance]:
    is_on = _text(root / CPUS / "cpufreq/boost") == "1"
    if is_on or _text(root / CPUS / "intel_pstate/no_turbo") == "0":
        yield Circumstance(
            subject="boost",
            found="on",
            means="cores are faster while they are cool and few of them are busy",
            advice="for --gpuperf-device=cpu turn it off in the firmware or in "
            f"/{CPUS}",
        )


def _load(cores: int) -> Circumstance:
    load = os.getloadavg()[0]
    found = f"{load:.1f} on {cores} core{'s' if cores > 1 else ''}"
    if load < BUSY * cores:
        return Circumstance(subject="load", found=found)
    return Circumstance(
        subject="load",
        found=found,
        means="other programs want the same cores",
        advice="measure when they have ended, or give the runner cores of its own",
    )


def _tools() -> Circumstance:
    versions = {name: _version(name) for name in TOOLS}
    old = [
        f"{name} {'.'.join(map(str, least))}"
        for name, least in TOOLS.items()
        if versions[name] and _numbers(versions[name]) < least
    ]
    return Circumstance(
        subject="tools",
        found=", ".join(f"{name} {v or 'absent'}" for name, v in versions.items()),
        means="some are older than what is tested" if old else "",
        advice=f"upgrade to {', '.join(old)}" if old else "",
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: 3, 8 of ``3.8.0rc1``."""
    found = []
    for part in text.split("."):
        if not part.isdecimal():
            break
        found.append(int(part))
    return tuple(found)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
