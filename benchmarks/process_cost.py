"""What a process costs: seconds by the wall, and of CPU time, with all that it started."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple


class Cost(NamedTuple):
    """Seconds by the wall, and of CPU time, of one run and all that it started."""

    wall: float
    cpu: float


def cost_of(arguments: Sequence[str], folder: str, **variables: str) -> Cost:
    """Run Python with *arguments* in *folder*, and wait for it and its children.

    It imports this checkout, and has the environment's *variables* as well.
    """
    here = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **here, **variables},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(wall, spent)


def middle(costs: Sequence[Cost]) -> Cost:
    """Return the medians of both."""
    return Cost(median(c.wall for c in costs), median(c.cpu for c in costs))
