"""What a gate costs: one run of each test, by device and by what shares a process.

    python benchmarks/gate_cost.py [TURNS]

``pytest --gpuperf`` on 1 and on 11 tests of a small training step, in turns: the difference
is what a test costs, the rest what a run costs before its first test. On a busy machine only
the CPU time tells something. `gpuperf doctor --cost`
takes these figures for tests of which no time is stored (``runner/run_estimates.py``).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final
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


FEW: Final = 1
MANY: Final = 11

TESTS: Final = """\
import pytest
import torch


@pytest.mark.parametrize("number", range({tests}))
def test_step(gpuperf, number):
    model = torch.nn.Linear(256, 10).to(gpuperf.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.rand(64, 256, device=gpuperf.device)

    def step():
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()

    gpuperf(step)
"""

GATES: Final = {
    "pretend, a process per test": ("pretend", "test"),
    "pretend, a process per module": ("pretend", "module"),
    "cpu, a process per test": ("cpu", "test"),
}


def gate(folder: Path, tests: int, device: str, isolation: str) -> Cost:
    """Run the gate of so many *tests*."""
    (folder / "test_steps.py").write_text(TESTS.format(tests=tests), "utf-8")
    options = (f"--gpuperf-device={device}", "-o", f"gpuperf_isolation={isolation}")
    plain = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.")
    return cost_of([*plain, "--gpuperf", *options], str(folder), CI="")


def main() -> None:
    """Print per gate what a run costs, and each test, by the wall and in CPU time."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found: dict[tuple[str, int], list[Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="gpuperf-cost-") as folder:
        for _ in range(turns):
            for name, (device, isolation) in GATES.items():
                for tests in (FEW, MANY):
                    cost = gate(Path(folder), tests, device, isolation)
                    found.setdefault((name, tests), []).append(cost)
    for name in GATES:
        few, many = middle(found[name, FEW]), middle(found[name, MANY])
        for clock, one, all_ in zip(("wall", "CPU"), few, many, strict=True):
            each = (all_ - one) / (MANY - FEW)
            print(f"{name}, {clock}: {one - each:.1f} s, {each:.2f} s per test")


if __name__ == "__main__":
    main()
