"""Unchanged code in fresh processes on a GPU: whom the gate blames, and what it finds.

    python benchmarks/on_gpu/unchanged.py --out FOLDER [--small] [--ab]

Stores a baseline of one training step, gates the unchanged code, then the same step with 2, 5
and 10 % more GPU time, each in runs of their own. What is added is one kernel that sleeps
longer (``torch.cuda._sleep``): no count and no byte moves, so that only the times can tell.
Each line has the exit status and the outcome of ``step_ms``, as an exit status of 0 may mean
"undecided". With ``--ab``, ``gpuperf ab`` compares the step's commit with itself instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final


MORE: Final = "MORE_CYCLES"
LEAST_CYCLES: Final = 1000

TEST: Final = """
import os

import torch
from torch import nn


def built(device, more_cycles):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer({width}, 8, 4 * {width}, batch_first=True)
    model = nn.TransformerEncoder(layer, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(32, 128, {width}, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda._sleep({least} + more_cycles)
        return loss.detach()

    return step


def test_training(gpuperf):
    gpuperf(built(gpuperf.device, int(os.environ.get("{more}", "0"))))


def milliseconds(function, times):
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    for _ in range(times):
        function()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / times


if __name__ == "__main__":
    step = built("cuda", 0)
    milliseconds(step, 50)
    step_ms = milliseconds(step, 50)
    sleep = lambda: torch.cuda._sleep(20_000_000)
    milliseconds(sleep, 20)
    print(step_ms, 20_000_000 / milliseconds(sleep, 20))
"""

PLAN: Final = (0, 0, 10, 5, 2, 0, 0, 10, 5, 2)
"""Percent that are added to the GPU's time, gate after gate."""
SMALL_PLAN: Final = (0, 10)

OUTCOME_LINES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One run of the plugin: ``more_pct`` is ``None`` where it stored the baseline."""

    more_pct: int | None
    exit_status: int
    seconds: float
    told: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ab", action="store_true", help="gpuperf ab HEAD, alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, width=64 if options.small else 512)
        if options.ab:
            return compare_with_itself(folder)
        plan = SMALL_PLAN if options.small else PLAN
        return gate_all(folder, plan, options.out)


def write_project(folder: Path, *, width: int) -> None:
    values = {"{width}": width, "{least}": LEAST_CYCLES, "{more}": MORE}
    text = TEST
    for place, value in values.items():
        text = text.replace(place, str(value))
    (folder / "test_unchanged.py").write_text(text, encoding="utf-8")
    settings = "[tool.pytest.ini_options]\n"
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")


def gate_all(folder: Path, plan: tuple[int, ...], out: Path) -> int:
    """Store, then gate as planned; fails only where nothing could be stored."""
    cycles = cycles_of_a_percent(folder)
    stored = keep(gated(folder, None, 0, "--gpuperf-update=all"), folder, out)
    if stored.exit_status:
        return 1
    for more_pct in plan:
        keep(gated(folder, more_pct, cycles * more_pct), folder, out)
    return 0


def cycles_of_a_percent(folder: Path) -> int:
    """Time the step and a sleep on the GPU; a percent of one in cycles of the other."""
    asked = [sys.executable, "test_unchanged.py"]
    done = subprocess.run(
        asked, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    step_ms, cycles_per_ms = map(float, done.stdout.split())
    print(f"a step has {step_ms:.4f} ms on the GPU, at {cycles_per_ms:.0f} cycles a ms")
    return round(cycles_per_ms * step_ms / 100)


def gated(folder: Path, more_pct: int | None, cycles: int, *more: str) -> Gate:
    gate = ("--gpuperf", "--gpuperf-device=cuda", "--gpuperf-explain", *more)
    quiet = ("-q", "--color=no", "-p", "no:cacheprovider")
    start_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, *gate],
        cwd=folder,
        env=os.environ | {MORE: str(cycles)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Gate(
        more_pct=more_pct,
        exit_status=done.returncode,
        seconds=round(time.monotonic() - start_s, 1),
        told=done.stdout,
    )


def keep(gate: Gate, folder: Path, out: Path) -> Gate:
    """Print a line of *gate*, and keep all that it said and stored."""
    label = "store" if gate.more_pct is None else f"{gate.more_pct:+} %"
    outcome = of_step_ms(gate.told)
    print(f"{label}: exit {gate.exit_status}, {gate.seconds} s; {outcome}", flush=True)
    row = asdict(gate) | {"outcome": outcome}
    with (out / "unchanged.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    stored = folder / "baselines"
    if stored.exists():
        shutil.copytree(stored, out / "unchanged-baselines", dirs_exist_ok=True)
    return gate


def of_step_ms(told: str) -> str:
    """Return what a gate says of ``step_ms``, on one line."""
    lines = told.splitlines()
    for at, line in enumerate(lines):
        if line.strip().startswith("step_ms "):
            below = takewhile(is_continued, lines[at + 1 : at + 1 + OUTCOME_LINES])
            return " ".join(part.strip() for part in (line, *below))
    return "no line on step_ms"


def is_continued(line: str) -> bool:
    return line.startswith(" " * 8)


def compare_with_itself(folder: Path) -> int:
    git = ("git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "A training step")):
        subprocess.run([*git, *command], cwd=folder, check=True)
    ab = [sys.executable, "-m", "pytest_gpuperf", "ab", "HEAD", "--device=cuda"]
    return subprocess.run(ab, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
