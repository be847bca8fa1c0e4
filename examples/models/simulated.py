"""A GPU on paper: the trace that a schedule of host and GPU would leave, and its reading.

Times are in microseconds. Nothing runs: only the plugin's own reading is executed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_gpuperf.measure.bottleneck import diagnosis_of
from pytest_gpuperf.measure.bottleneck import find_spent
from pytest_gpuperf.measure.gpu_activity import find_busy


# The tests of the plugin have it, too.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

from gpu_on_paper import SimulatedGpu


def trace_of(*schedule, steps=3):
    gpu = SimulatedGpu()
    for _ in range(steps):
        gpu.play(schedule)
    return gpu.events


def shares_of(*schedule):
    """Return the percent of a step by what they are spent on, the first cause in front."""
    parts = diagnosis_of(find_spent(trace_of(*schedule)), {}).parts
    return {part.bottleneck.value: part.percent for part in parts}


def step_ms(*schedule):
    return sum(part.ms for part in find_spent(trace_of(*schedule)))


def busy_percent(*schedule):
    kernels, _ = find_busy(trace_of(*schedule))
    return kernels
