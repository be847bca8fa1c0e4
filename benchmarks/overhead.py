"""What the plugin itself costs, each figure against its own baseline in the same run.

    python benchmarks/overhead.py [collect] [loop] [simulated] [watch] [--rounds 5] [--tests 40]

``collect``  pytest --co with the plugin and with an empty one, in turn: pytest itself looks
             for every entry point where a plugin is named, and by default in each run
``loop``     the timed loop and a bare ``for`` loop that call the same empty step, in turn
``simulated``  the simulated GPU: the same training step on the CPU and on it, and with its
             memory watched, in turns; a step of small operations, and one of large products
``watch``    ``pytest --gpuperf-watch`` on tests that each train a small model for 20 steps,
             on ``cuda`` if torch has one, else on the simulated GPU, beside the plain run

Without a name it runs all but the last two, which take minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from subprocess import DEVNULL, run
from typing import Final

import torch
from torch import nn

from pytest_gpuperf.devices.cpu import CpuDevice
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory import SIMULATED_MEMORY
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import time_round


ROOT: Final = Path(__file__).resolve().parents[1]

PAIRS: Final = 151
UNMEASURED_PAIRS: Final = 3
BLOCKS: Final = 101
STEPS: Final = 100_000

COLLECTED: Final = """
import pytest
@pytest.mark.parametrize("n", range(100))
def test_plain(n): pass
@pytest.mark.parametrize("n", range(100))
def test_step(gpuperf, n): gpuperf(int)
"""


def line(name: str, value: str, bar: str) -> None:
    print(f"{name:<58} {value:>16}   {bar}")


def collect(folder: Path) -> None:
    """Time ``pytest --co`` of 200 tests in fresh interpreters with warm bytecode."""
    (folder / "test_collected.py").write_text(COLLECTED)
    (folder / "empty_plugin.py").write_text("")
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def timed_ms(*arguments: str) -> tuple[float, float]:
        command = [sys.executable, "-m", "pytest", "--co", "-q", *arguments]
        start_ns, start_cpu_ms = time.perf_counter_ns(), children_cpu_ms()
        run(command, cwd=folder, env=environment, stdout=DEVNULL, check=True)
        wall_ms = (time.perf_counter_ns() - start_ns) / 1e6
        return wall_ms, children_cpu_ms() - start_cpu_ms

    walls, cpus, without = [], [], []
    for pair in range(-UNMEASURED_PAIRS, PAIRS):
        bare_wall_ms, bare_cpu_ms = timed_ms("-p", "empty_plugin")
        wall_ms, cpu_ms = timed_ms("-p", "pytest_gpuperf.plugin")
        if pair >= 0:
            without.append(bare_wall_ms)
            walls.append(wall_ms - bare_wall_ms)
            cpus.append(cpu_ms - bare_cpu_ms)
    line("pytest --co without the plugin", f"{median(without):.1f} ms", "")
    line("the plugin adds, wall time", f"{median(walls):.1f} ms", "bar 10 ms")
    line("the plugin adds, CPU time", f"{median(cpus):.1f} ms", "bar 10 ms")


def children_cpu_ms() -> float:
    """CPU time of all child processes so far: what waits for a core does not count."""
    used = getrusage(RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def empty() -> None:
    pass


def loop(_: Path) -> None:
    """Time blocks of an empty step: the loop that measures, a bare one, and again."""
    device = CpuDevice()
    subjects = {
        "timed loop": Subject(step=empty),
        "timed loop with setup": Subject(step=lambda *_: None, setup=lambda: (1, 2)),
    }
    for name, subject in subjects.items():
        steps = subject.most_steps(STEPS)
        times = [
            (
                bare_ms(subject, steps),
                time_round(device, subject, steps).step_ms,
            )
            for _ in range(BLOCKS)
        ]
        bare_ns = median(bare for bare, _ in times) * 1e6
        over_ns = median(timed - bare for bare, timed in times) * 1e6
        line(f"bare loop of {steps} steps, a step", f"{bare_ns:.1f} ns", "")
        line(f"{name} over it, a step", f"{over_ns:+.1f} ns", "bar 1000 ns")


def bare_ms(subject: Subject, steps: int) -> float:
    step: Callable[..., object] = subject.step
    batch = list(subject.batch(steps)) if subject.setup else None
    start_ns = time.perf_counter_ns()
    if batch is None:
        for _ in range(steps):
            step()
    else:
        for arguments in batch:
            step(*arguments)
    return (time.perf_counter_ns() - start_ns) / steps / 1e6


# The simulated GPU.

WARM_UP: Final = 3


@dataclass(frozen=True, kw_only=True)
class Size:
    """A small transformer's width and batch, how many pairs to time, and the bar."""

    width: int
    batch: int
    pairs: int
    bar: float
    watched_bar: float = 1.6


SIZES: Final = {
    "tiny": Size(width=16, batch=2, pairs=31, bar=15),
    "compute": Size(width=256, batch=128, pairs=9, bar=2),
}


def training(device: str, size: Size) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(
            size.width, 2, 2 * size.width, dropout=0.0, batch_first=True
        )
        for _ in range(2)
    ]
    model = nn.Sequential(*layers, nn.Linear(size.width, 5)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    batch = torch.randn(size.batch, 8, size.width).to(device)
    labels = torch.randint(0, 5, (size.batch * 8,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        scores = model(batch).view(-1, 5)
        nn.functional.cross_entropy(scores, labels).backward()
        optimizer.step()

    return step


def spent_ms(step: Callable[[], None]) -> float:
    start_ns = time.process_time_ns()
    step()
    return (time.process_time_ns() - start_ns) / 1e6


def spent_watched_ms(step: Callable[[], None]) -> tuple[float, float]:
    """Time of the step, and of the same with its memory watched."""
    with watching_memory():
        live, SIMULATED_MEMORY.live = SIMULATED_MEMORY.live, None
        plain = spent_ms(step)
        SIMULATED_MEMORY.live = live
        return plain, spent_ms(step)


def compare(name: str, size: Size) -> None:
    with simulated_gpu() as gpu:
        host, device = training("cpu", size), training("cuda", size)
        for _ in range(WARM_UP):
            host()
            device()
        pairs = [(spent_ms(host), spent_ms(device)) for _ in range(size.pairs)]
        watched = [spent_watched_ms(device) for _ in range(size.pairs)]
        gpu.begin_step()
        device()
        audit = gpu.end_step()
    on_host, on_device = (median(times) for times in zip(*pairs, strict=True))
    unwatched, with_memory = (median(times) for times in zip(*watched, strict=True))
    print(
        f"{name:<8} {on_host:8.1f} ms on the CPU {on_device:8.1f} ms simulating "
        f"x{on_device / on_host:.2f}   bar x{size.bar:g}   "
        f"{audit.totals.counts['launches']} ops, {audit.totals.syncs} syncs"
    )
    print(
        f"{'':<8} {unwatched:8.1f} ms unwatched {with_memory:8.1f} ms with memory "
        f"x{with_memory / unwatched:.2f}   bar x{size.watched_bar:g}"
    )


def simulated(_: Path) -> None:
    """Ratios are of this process's CPU time with one thread, medians over pairs of steps."""
    torch.set_num_threads(1)
    for name, size in SIZES.items():
        compare(name, size)


# Watching a suite.

WATCH_BAR: Final = 1.3

SUITE: Final = '''"""Small models learn random numbers."""

import pytest
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, rows):
        return self.last(self.layer(rows)[0][:, -1])


MODELS = {
    "perceptron": ((64, 784), lambda: nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))),
    "convolution": ((64, 1, 28, 28), lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 121, 10))),
    "recurrent": ((64, 32, 32), Recurrent),
    "attention": ((64, 16, 64), lambda: nn.Sequential(
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
        nn.Flatten(), nn.Linear(16 * 64, 10))),
}


@pytest.mark.parametrize("seed", range({seeds}))
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns(name, seed):
    torch.manual_seed(seed)
    shape, build = MODELS[name]
    model = build().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch, labels = torch.randn(shape), torch.randint(10, (shape[0],))
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(batch.to(DEVICE)), labels.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] <= losses[0]
'''

WATCHING: Final = {"plain": (), "watched": ("--gpuperf-watch",)}


def watch(folder: Path, rounds: int, tests: int) -> None:
    """Run the suite plain and watched, in turns, in fresh interpreters with one thread.

    Threads that wait for work take CPU time.
    """
    text = SUITE.replace("{seeds}", str(tests // 4))
    (folder / "test_models.py").write_text(text, encoding="utf-8")
    here = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WATCHING}
    for _ in range(rounds):
        for name, options in WATCHING.items():
            start_s, start_cpu_ms = time.perf_counter(), children_cpu_ms()
            pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
            run(
                [sys.executable, *pytest],
                cwd=folder,
                env={**os.environ, **here},
                stdout=DEVNULL,
                check=True,
            )
            cpu_s = (children_cpu_ms() - start_cpu_ms) / 1e3
            found[name].append((time.perf_counter() - start_s, cpu_s))
    medians = {n: [*map(median, zip(*f, strict=True))] for n, f in found.items()}
    for name, (wall_s, cpu_s) in medians.items():
        print(f"{name:<8} {wall_s:6.2f} s, {cpu_s:6.2f} s of CPU time")
    wall, cpu = (b / a for a, b in zip(*medians.values(), strict=True))
    print(
        f"ratio: {wall:.2f} by the wall, {cpu:.2f} of CPU time; the bar on a GPU is "
        f"{WATCH_BAR:g}"
    )


PARTS: Final = {"collect": collect, "loop": loop, "simulated": simulated}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--rounds", type=int, default=5, help="of watch")
    parser.add_argument("--tests", type=int, default=40, help="of watch")
    asked = parser.parse_args()
    if unknown := {*asked.parts} - {*PARTS, "watch"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    for name in asked.parts or ("collect", "loop"):
        with tempfile.TemporaryDirectory() as folder:
            if name == "watch":
                watch(Path(folder), asked.rounds, asked.tests)
            else:
                PARTS[name](Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
