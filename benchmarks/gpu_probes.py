"""What one GPU is asked, a question a process; the parts of ``gpu.sh`` ask them.

    python benchmarks/gpu_probes.py machine|key|ladder|unchanged|ab [--out FOLDER] [--small]

``machine``    what the GPU says of itself, as ``machine.json``; ``key`` prints its name
``ladder``     GPT-2 large: memory and time of each rung, a process and a line of
               ``ladder.jsonl`` a rung, beside what is predicted and published (the last
               published rung, two GPUs, is left out)
``unchanged``  a baseline of one training step, then gates of unchanged code and of 2, 5 and
               10 % more GPU time, each in runs of their own. What is added is one kernel that
               sleeps longer: no count and no byte moves, so that only the times can tell.
               A line of ``unchanged.jsonl`` a gate, with its outcome of ``step_ms``
``ab``         ``gpuperf ab`` on the commit of that step and itself

Exit status 4 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Final

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.codec import encode


READINGS: Final = 50


def reading_ms(device: CudaDevice) -> float:
    """Return the median cost of asking for throttling and other processes."""
    device.disturbance()
    costs = []
    for _ in range(READINGS):
        start_ns = device.now_ns()
        device.disturbance()
        costs.append((device.now_ns() - start_ns) / 1e6)
    return median(costs)


def described(device: CudaDevice) -> dict[str, object]:
    environment = device.environment()
    device.measure_memory(lambda: device.torch.ones(1, device="cuda"), ())
    return {
        "environment": encode(environment),
        "unmeasurable": dict(device.unmeasurable),
        "disturbance": device.disturbance(),
        "disturbance_reading_ms": round(reading_ms(device), 4),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def machine(out: Path, *, small: bool) -> int:  # noqa: ARG001
    text = json.dumps(described(CudaDevice.open()), indent=1, sort_keys=True)
    print(text)
    (out / "machine.json").write_text(text, encoding="utf-8")
    return 0


def key(out: Path, *, small: bool) -> int:  # noqa: ARG001
    print(CudaDevice.open().environment().hardware.key)
    return 0


# GPT-2 large.

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

MIB: Final = 2**20
WARM_UP: Final = 3
STEPS: Final = 3


def ladder(out: Path, *, small: bool) -> int:
    """Ask a process a rung; a rung that fails leaves the others."""
    from claims import read_claims
    from models.gpt2 import LADDER

    worst = 0
    rungs = read_claims().ladder[: len(LADDER)]
    with (out / "ladder.jsonl").open("w", encoding="utf-8") as file:
        for number, rung in enumerate(rungs):
            program = [sys.executable, "-W", "ignore", __file__, "ladder"]
            size = ["--small"] if small else []
            done = subprocess.run(
                [*program, "--rung", str(number), *size],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            worst = worst or done.returncode
            row = {
                "rung": rung.name,
                "published_mib": rung.published_mib,
                "predicted_mib": rung.predicted_mib,
                **json.loads(done.stdout if done.returncode == 0 else "{}"),
            }
            print(json.dumps(row), flush=True)
            file.write(json.dumps(row) + "\n")
    return worst


def measured(number: int, *, small: bool) -> dict[str, float]:
    """Take some steps of a rung in this process; return its MiB and seconds."""
    import torch
    from models.gpt2 import LADDER, LARGE, Training

    shape = replace(LARGE, layers=4, width=320, heads=5, batch=8) if small else LARGE
    torch.manual_seed(0)
    step = Training(shape, "cuda", **LADDER[number])
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start_s = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start_s) / STEPS
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_mib": torch.cuda.max_memory_allocated() / MIB,
        "reserved_mib": torch.cuda.max_memory_reserved() / MIB,
        "device_used_mib": (total - free) / MIB,
        "seconds": seconds,
    }


# Unchanged code, and more work.

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
    output: str


def write_project(folder: Path, *, small: bool) -> None:
    width = 64 if small else 512
    values = {"{width}": width, "{least}": LEAST_CYCLES, "{more}": MORE}
    text = TEST
    for place, value in values.items():
        text = text.replace(place, str(value))
    (folder / "test_unchanged.py").write_text(text, encoding="utf-8")
    settings = "[tool.pytest.ini_options]\n"
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")


def unchanged(out: Path, *, small: bool) -> int:
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), small=small)
        return gate_all(Path(name), SMALL_PLAN if small else PLAN, out)


def ab(out: Path, *, small: bool) -> int:  # noqa: ARG001
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), small=small)
        return compare_with_itself(Path(name))


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
        output=done.stdout,
    )


def keep(gate: Gate, folder: Path, out: Path) -> Gate:
    """Print a line of *gate*, and keep all that it said and stored."""
    label = "store" if gate.more_pct is None else f"{gate.more_pct:+} %"
    outcome = of_step_ms(gate.output)
    print(f"{label}: exit {gate.exit_status}, {gate.seconds} s; {outcome}", flush=True)
    row = asdict(gate) | {"outcome": outcome}
    with (out / "unchanged.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    stored = folder / "baselines"
    if stored.exists():
        shutil.copytree(stored, out / "unchanged-baselines", dirs_exist_ok=True)
    return gate


def of_step_ms(output: str) -> str:
    """Return what a gate says of ``step_ms``, on one line."""
    lines = output.splitlines()
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


PROBES: Final[dict[str, Callable[..., int]]] = {
    "machine": machine,
    "key": key,
    "ladder": ladder,
    "unchanged": unchanged,
    "ab": ab,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("probe", choices=PROBES)
    parser.add_argument(
        "--out", type=Path, default=Path(), help="folder of the results"
    )
    parser.add_argument("--small", action="store_true", help="the least, to rehearse")
    parser.add_argument("--rung", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rung is not None:
        print(json.dumps(measured(options.rung, small=options.small)))
        return 0
    try:
        return PROBES[options.probe](options.out, small=options.small)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4


if __name__ == "__main__":
    sys.exit(main())
