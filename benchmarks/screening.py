"""How long a whole ``pytest --gpuperf`` takes on a suite of fast tests.

    python benchmarks/screening.py [TESTS] [MOST]

Makes TESTS (default 40) tests of a real CPU training step of about a millisecond,
records their baselines and times the runs that screen them, each as a user starts it.

The bar is one of two quiet cores, and a shared host is not always quiet. So the same step
is timed in a plain loop, without the plugin, before and after each run: the run counts
for the bar if both loops were steady. Runs go on until three count, MOST (default 12) at
most. All of them are printed. Exits with 1 if the bar is missed and with 2 if too few runs
were on quiet cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final


TESTS: Final = 40
SCREENINGS: Final = 3
MOST: Final = 12
BAR_SECONDS: Final = 15.0

NOT_A_USERS: Final = frozenset({"CI", "PYTHONDONTWRITEBYTECODE"})
"""Variables that are not passed on. With the second pytest rewrites each plugin anew."""

STEP: Final = """
import torch
from torch import nn

def made(n):
    torch.manual_seed(n)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step
"""

SUITE: Final = """
import pytest
{step}

@pytest.mark.parametrize("n", range({tests}))
def test_step(gpuperf, n):
    with open("runs.txt", "a") as file: file.write(f"{{n}}\\n")
    gpuperf(made(n))
"""

LOOP: Final = """
import time
{step}

def round_ms():
    start_s = time.perf_counter()
    for _ in range(10): step()
    return 100 * (time.perf_counter() - start_s)

torch.set_num_threads(1)
step = made(0)
for _ in range(20): step()
print(*(round_ms() for _ in range(200)))
"""
"""Two seconds of that step without pytest, on one thread as the plugin times it."""

STEADY: Final = 1.1
"""A round of the loop above this many times its median was disturbed."""

SHARE: Final = 0.05
"""On quiet cores no more of a loop's rounds than this were disturbed."""

SAME: Final = 1.03
"""On quiet cores the median of a loop is at most this many times the fastest one's."""


@dataclass(frozen=True, slots=True)
class PlainLoop:
    """How steady the step ran without the plugin."""

    median_ms: float
    disturbed: float

    @classmethod
    def timed(cls) -> PlainLoop:
        command = [sys.executable, "-c", LOOP.format(step=STEP)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rounds_ms = [float(word) for word in done.stdout.split()]
        typical_ms = median(rounds_ms)
        slow = sum(ms > STEADY * typical_ms for ms in rounds_ms)
        return cls(median_ms=typical_ms, disturbed=slow / len(rounds_ms))

    def is_quiet(self, fastest_ms: float) -> bool:
        return self.disturbed <= SHARE and self.median_ms <= SAME * fastest_ms

    def __str__(self) -> str:
        return f"{self.median_ms:.3f} ms, {100 * self.disturbed:.0f} % disturbed"


@dataclass(frozen=True, slots=True)
class Screening:
    """A run against the baselines, and the plain loops before and after it."""

    seconds: float
    loops: tuple[PlainLoop, PlainLoop]


def on_quiet_cores(screenings: Sequence[Screening]) -> list[Screening]:
    fastest_ms = min((p.median_ms for s in screenings for p in s.loops), default=0.0)
    return [s for s in screenings if all(p.is_quiet(fastest_ms) for p in s.loops)]


def pytest(folder: Path, *arguments: str) -> tuple[float, str]:
    """Run pytest and return its seconds and its output."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--gpuperf",
        "--gpuperf-device=cpu",
    ]
    environment = {k: v for k, v in os.environ.items() if k not in NOT_A_USERS}
    (folder / "runs.txt").write_text("")
    start_s = time.perf_counter()
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return time.perf_counter() - start_s, done.stdout


def runs(folder: Path) -> Counter[str]:
    """How often each test was started, by test."""
    return Counter((folder / "runs.txt").read_text().split())


def step_ms(folder: Path) -> float:
    (pending,) = (folder / ".gpuperf").glob("pending-*.json")
    tests = json.loads(pending.read_text())["tests"].values()
    times = [test["runs"][0]["times"]["step_ms"]["q50"] for test in tests]
    return sorted(times)[len(times) // 2]


def report(name: str, seconds: float, folder: Path, output: str) -> None:
    counts = runs(folder)
    again = sum(count > 1 for count in counts.values())
    (verdict,) = [x for x in output.splitlines() if x.startswith("gpuperf: ")][-1:]
    print(
        f"{name:<9} {seconds:6.1f} s  {counts.total()} runs, {again} tests had more than "
        f"one, median step {step_ms(folder):.2f} ms; {verdict}",
        flush=True,
    )


def screen(folder: Path, most: int) -> list[Screening]:
    """Run the gate until enough runs were on quiet cores, and return all of them."""
    screenings: list[Screening] = []
    before = PlainLoop.timed()
    while len(screenings) < most and len(on_quiet_cores(screenings)) < SCREENINGS:
        seconds, output = pytest(folder)
        after = PlainLoop.timed()
        report("screening", seconds, folder, output)
        print(f"{'':<9} a plain loop before: {before}; after: {after}", flush=True)
        screenings.append(Screening(seconds, (before, after)))
        before = after
    return screenings


def judged(screenings: Sequence[Screening]) -> int:
    """Print what the runs come to, and return the status of the benchmark."""
    quiet = [s.seconds for s in on_quiet_cores(screenings)]
    every = median(s.seconds for s in screenings)
    print(f"median    {every:6.1f} s  of all {len(screenings)} runs")
    if len(quiet) < SCREENINGS:
        print(f"only {len(quiet)} runs on quiet cores, {SCREENINGS} are needed")
        return 2
    print(
        f"median    {median(quiet):6.1f} s  of {len(quiet)} on quiet cores; "
        f"bar {BAR_SECONDS:.0f} s for 40 tests"
    )
    return 0 if median(quiet) <= BAR_SECONDS else 1


def main() -> int:
    tests, most = [*map(int, sys.argv[1:]), *(TESTS, MOST)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE.format(step=STEP, tests=tests))
        seconds, output = pytest(folder, "--gpuperf-update=all")
        report("refresh", seconds, folder, output)
        return judged(screen(folder, most))


if __name__ == "__main__":
    sys.exit(main())
