"""``gpuperf ab`` on a commit whose step does more: how often is it seen?

    python benchmarks/ab_planted.py run [--comparisons 100] [--minutes 60] [--out FILE]
    python benchmarks/ab_planted.py show [FILE]

Small training steps (an MLP, a convolution, two attention layers) stand in a repository.
Its second commit adds real work to each of them: products of matrices of their own, as
many as take about 5 or 10 % of its CPU time on this machine, by a count beforehand.
The command compares the two commits as a user types it. A file that is there is
continued, a workload and a size of the slowdown by turns, until each size has
``--comparisons`` verdicts or ``--minutes`` have passed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import continued
from ab_command import SUITE
from continued import load


RESULTS: Final = Path(__file__).parent / "results" / "ab_planted.jsonl"

SIZES: Final = (5, 10)
"""Slowdowns in percent."""

WORKLOADS: Final = ("mlp", "conv", "attention")

EXTRA: Final = "    extra = torch.randn(48, 48)\n"
WORK: Final = "        for _ in range({count}):\n            extra @ extra\n"

COUNT: Final = """
import sys, time
from statistics import quantiles
import torch
torch.set_num_threads(1)
sys.path.insert(0, ".")
import test_steps
kept = []
for name in ("mlp", "conv", "attention"):
    test_steps.test_step(kept.append, getattr(test_steps, name), 0)
extra = torch.randn(48, 48)
def products():
    for _ in range(100):
        extra @ extra
def taken(call):
    start = time.thread_time()
    call()
    return time.thread_time() - start
def ratio(step):
    rounds = [(taken(step), taken(products)) for _ in range(150)][30:]
    step_s, products_s = (quantiles(times, n=4)[0] for times in zip(*rounds))
    return 100 * step_s / products_s
print(*map(ratio, kept))
"""
"""Prints how many products take as much CPU time as a step of each workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One verdict; ``change`` and ``sees`` are cells of the table of the command.

    ``planted`` is the slowdown in percent that was aimed at, ``products`` what was added
    for it. ``command_s`` is what the command took.
    """

    planted: int
    workload: str
    products: int
    verdict: str
    change: str
    sees: str
    command_s: float
    load: float


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", str(folder), *author, *arguments], check=True)  # noqa: S607


def make_repository(folder: Path) -> None:
    (folder / "test_steps.py").write_text(with_products(0), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "before")


def with_products(count: int) -> str:
    """Return the suite with *count* products of matrices in each step."""
    built = SUITE.replace("    def step():\n", f"{EXTRA}\n    def step():\n")
    work = WORK.format(count=count) if count else ""
    return built.replace(
        "        optimizer.step()\n", f"        optimizer.step()\n{work}"
    )


def plant(folder: Path, count: int) -> None:
    """Commit the slower version anew."""
    git(
        folder,
        "checkout",
        "--quiet",
        "--detach",
        "HEAD~1" if planted(folder) else "HEAD",
    )
    (folder / "test_steps.py").write_text(with_products(count), encoding="utf-8")
    git(folder, "commit", "--quiet", "--all", "-m", f"{count} products")


def planted(folder: Path) -> bool:
    counted = ["git", "-C", str(folder), "rev-list", "--count", "HEAD"]
    return subprocess.run(counted, check=True, capture_output=True).stdout != b"1\n"


def products_a_step(folder: Path) -> dict[str, float]:
    """Count, on this machine and now, the products that take as long as a step."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return dict(zip(WORKLOADS, map(float, done.stdout.split()), strict=True))


def compare(folder: Path, percent: int, workload: str, count: int) -> Row:
    """Type the command once for one test, and read its table."""
    test = f"test_steps.py::test_step[{workload}-0]"
    typed = ("ab", "HEAD~1", "HEAD", "--device=cpu", "--markdown", "--", test)
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpuperf", *typed],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    command_s = time.monotonic() - start
    if done.returncode not in {0, 1, 125}:
        sys.exit(f"the command ended with {done.returncode}: {done.stdout}")
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    ((verdict, _, _, _, change, _, sees, _),) = (
        row for row in cells if len(row) == 8 and row[1] == "step_ms"
    )
    return Row(
        planted=percent,
        workload=workload,
        products=count,
        verdict=verdict,
        change=change,
        sees=sees,
        command_s=round(command_s, 1),
        load=round(os.getloadavg()[0], 2),
    )


def run(comparisons: int, minutes: float, out: Path) -> None:
    end = time.monotonic() + 60 * minutes
    out.parent.mkdir(exist_ok=True)
    rows = load(out, Row)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_repository(folder)
        products = products_a_step(folder)
        while time.monotonic() < end and len(rows) < len(SIZES) * comparisons:
            percent = SIZES[len(rows) % len(SIZES)]
            workload = WORKLOADS[len(rows) // len(SIZES) % len(WORKLOADS)]
            count = max(1, round(products[workload] * percent / 100))
            plant(folder, count)
            row = compare(folder, percent, workload, count)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            rows.append(row)
            print(row, file=sys.stderr)


def show(rows: Sequence[Row]) -> bool:
    """Print the table, and what was seen of each size."""
    print("planted  workload   comparisons  slower  same     undecided  change  load")
    for percent in SIZES:
        for workload in WORKLOADS:
            chosen = [
                row
                for row in rows
                if (row.planted, row.workload) == (percent, workload)
            ]
            if chosen:
                print(line(percent, workload, chosen))
    for percent in SIZES:
        seen = [row.verdict == "slower" for row in rows if row.planted == percent]
        print(f"{percent} %: {sum(seen)} of {len(seen)} called slower")
    return True


def line(percent: int, workload: str, rows: Sequence[Row]) -> str:
    counts = {
        verdict: sum(row.verdict == verdict for row in rows)
        for verdict in ("slower", "same", "undecided")
    }
    change = median(float(row.change.rstrip(" %")) for row in rows)
    load = sum(row.load for row in rows) / len(rows)
    return (
        f"{percent:5} %  {workload:9}  {len(rows):11}  {counts['slower']:6}  "
        f"{counts['same']:4}  {counts['undecided']:12}  {change:+5.1f}%  {load:4.1f}"
    )


def main() -> int:
    return continued.main(
        str(__doc__), RESULTS, 100, run, lambda path: show(load(path, Row))
    )


if __name__ == "__main__":
    sys.exit(main())
