"""The JSON of pytest-benchmark, for its ``compare`` and for those that read it.

All times are seconds there. What has no field of its own is in ``extra_info``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean, median, stdev
from typing import Any, Final

from ..model.environment import DeviceKind, Hardware
from ..model.run import Head
from .measured_calls import MeasuredCall
from .numbers import rounded


FORMAT_VERSION: Final = "5.3.1"
"""Version of pytest-benchmark that has this format."""

BENCHMARK_GROUP: Final = "gpuperf"
"""Group of our numbers, apart from those of its own fixture."""

FENCE: Final = 1.5
"""Interquartile ranges beyond the quartiles from which on a time is an outlier (Tukey)."""

MACHINE: Final = (
    *("node", "processor", "machine", "python_compiler", "python_implementation"),
    *("python_implementation_version", "python_version", "release", "system"),
)
"""Fields of its machine info that stay empty: no name of a host is published."""


def dumps(head: Head, calls: Sequence[MeasuredCall], measured_at: datetime) -> str:
    """Write those *calls* that have times; *head* says where they were measured."""
    document = {
        "machine_info": _machine(head.hardware),
        "commit_info": {
            "id": head.commit or "unversioned",
            "time": None,
            "author_time": None,
            "dirty": False,
            "project": "",
            "branch": "(unknown)",
        },
        "benchmarks": [_benchmark(call) for call in calls if call.step_ms],
        "datetime": measured_at.isoformat(),
        "version": FORMAT_VERSION,
    }
    return json.dumps(document, indent=2) + "\n"


def _machine(hardware: Hardware | None) -> dict[str, Any]:
    known = hardware or Hardware(kind=DeviceKind.SCRIPTED, name="")
    on_cpu = known.kind is DeviceKind.CPU
    return {
        **dict.fromkeys(MACHINE, ""),
        "python_build": [],
        "cpu": {"brand_raw": known.name if on_cpu else ""},
        "gpu": {"name": "" if on_cpu else known.name},
    }


def _benchmark(call: MeasuredCall) -> dict[str, Any]:
    seconds = seconds_of(call)
    return {
        **described(call),
        "options": options_of(call),
        "stats": {**statistics_of(seconds), "data": seconds, "iterations": 1},
    }


def seconds_of(call: MeasuredCall) -> list[float]:
    """Return what a step took in each sample of each run."""
    return [ms / 1e3 for ms in call.step_ms]


def described(call: MeasuredCall) -> dict[str, Any]:
    """Name a benchmark as pytest-benchmark does, and say what else was measured."""
    parameters = call.parameters
    return {
        "group": BENCHMARK_GROUP,
        "name": call.name,
        "fullname": call.key,
        "params": None if parameters is None else {"id": parameters},
        "param": parameters,
        "extra_info": {
            "outcome": call.outcome.value,
            "runs": len(call.runs),
            **{name: rounded(value) for name, value in call.values.items()},
        },
    }


def options_of(call: MeasuredCall) -> dict[str, Any]:
    """Return the options with which pytest-benchmark would measure in the same way."""
    return {
        "disable_gc": True,
        "timer": "pytest_gpuperf",
        "min_rounds": len(call.step_ms),
        "max_time": 0.0,
        "min_time": 0.0,
        "warmup": True,
    }


def statistics_of(seconds: Sequence[float]) -> dict[str, Any]:
    """Sum up *seconds*, at least one, as pytest-benchmark does."""
    ordered, mean, total = sorted(seconds), fmean(seconds), sum(seconds)
    deviation = stdev(ordered) if len(ordered) > 1 else 0.0
    q1, q3 = _quartiles(ordered)
    low, high = q1 - FENCE * (q3 - q1), q3 + FENCE * (q3 - q1)
    inside = [s for s in ordered if low <= s <= high]
    far = sum(not mean - deviation <= s <= mean + deviation for s in ordered)
    outside = len(ordered) - len(inside)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(ordered),
        "median": median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": len(ordered) / total if total else 0,
        "total": total,
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """Medians of the halves, with and without the middle one, in the mean.

    It is what pytest-benchmark computes: Tukey's hinges and those of Moore and McCabe
    are the same for an even number, and for an odd one it lies between them.
    """
    if len(ordered) == 1:
        return ordered[0], ordered[0]
    below, above = len(ordered) // 2, (len(ordered) + 1) // 2
    lower = (median(ordered[:below]) + median(ordered[:above])) / 2
    upper = (median(ordered[below:]) + median(ordered[above:])) / 2
    return lower, upper
