"""How long a whole ``pytest --gpuperf`` takes on a suite of fast tests.

    python benchmarks/screening.py [TESTS]

Makes TESTS (default 40) tests of a real CPU training step of about a millisecond,
records their baselines and times the runs that screen them, each as a user starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Final


TESTS: Final = 40
SCREENINGS: Final = 3
BAR_SECONDS: Final = 15.0

NOT_A_USERS: Final = frozenset({"CI", "PYTHONDONTWRITEBYTECODE"})
"""Variables that are not passed on. With the second pytest rewrites each plugin anew."""

SUITE: Final = """
import os
import pytest
import torch
from torch import nn

@pytest.mark.parametrize("n", range({tests}))
def test_step(gpuperf, n):
    with open("runs.txt", "a") as file: file.write(f"{{n}}\\n")
    torch.manual_seed(n)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    gpuperf(step)
"""


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


def main() -> int:
    tests = int(sys.argv[1]) if len(sys.argv) > 1 else TESTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE.format(tests=tests))
        seconds, output = pytest(folder, "--gpuperf-update=all")
        report("refresh", seconds, folder, output)
        screenings = []
        for _ in range(SCREENINGS):
            seconds, output = pytest(folder)
            report("screening", seconds, folder, output)
            screenings.append(seconds)
    print(
        f"median    {median(screenings):6.1f} s  bar {BAR_SECONDS:.0f} s for 40 tests"
    )
    return 0 if median(screenings) <= BAR_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
