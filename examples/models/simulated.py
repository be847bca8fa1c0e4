"""A GPU on paper: the trace that a schedule of host and GPU would leave, and its reading.

Times are in microseconds. Nothing runs: only the plugin's own reading is executed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_gpuperf.measure.gpu_activity import find_busy, find_communication


# The tests of the plugin have it, too.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

from gpu_on_paper import SimulatedGpu


def trace_of(*schedule, steps=3):
    gpu = SimulatedGpu()
    for _ in range(steps):
        gpu.play(schedule)
    return gpu.events


def exposed_percent(*schedule):
    """Return the share of a step in which a collective runs and nothing computes."""
    events = trace_of(*schedule)
    return 100 * find_communication(events).exposed_ms / find_busy(events)[1]


def step_ms(*schedule):
    return find_busy(trace_of(*schedule))[1]


def busy_percent(*schedule):
    return 100 * find_busy(trace_of(*schedule))[0]
