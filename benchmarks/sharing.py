"""What other programs add to a step beyond the time that it waits for a core.

    python benchmarks/sharing.py [--rounds N] [--series N]

Steps are timed alone and beside 1, 2, 4 and 8 processes that compute, which stop and go
on in turn (SIGSTOP, SIGCONT), so that both sides see the same minutes. Of each block the
time that threads waited for a core is taken off. The median of what is left, against the
first decile of the step alone, is what sharing a core's other half, caches, memory and
clocks adds: ``judge/readings.py`` grants more than the largest.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from statistics import quantiles
from typing import Final

from pytest_gpuperf.devices.cpu.contention import family_wait_ns


WHILE_WANTED: Final = "import os, sys\nwhile os.path.exists(sys.argv[1]):\n "
"""A process that nobody waits for ends with the one that wanted it."""

COMPUTE: Final = WHILE_WANTED + "sum(range(1_000_000))"

STREAM: Final = (
    f"a, b = bytearray(64 << 20), bytearray(64 << 20)\n{WHILE_WANTED}a[:] = b"
)
"""Fills the memory's bandwidth and the shared cache, where ``COMPUTE`` fills a core."""

START: Final = (
    "import subprocess, sys\n"
    "for _ in range(int(sys.argv[1])):\n"
    " print(subprocess.Popen([sys.executable, '-c', *sys.argv[2:]], stdout=-3).pid)"
)
"""Starts what shall be nobody's child: what a step's own children wait for is its own."""

STOP, GO = signal.SIGSTOP, signal.SIGCONT

BESIDE: Final = (1, 2, 4, 8)
BLOCK_MS: Final = 10.0


def steps() -> dict[str, Callable[[], object]]:
    import torch

    torch.set_num_threads(1)
    wide, tall = torch.rand(192, 192), torch.rand(192, 192)
    source, target = torch.rand(4 << 20), torch.empty(4 << 20)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
    batch = torch.rand(32, 64)
    return {
        "python": lambda: sum(range(50_000)),
        "matrix product": lambda: wide @ tall,
        "small operations": lambda: model(batch).sum().backward(),
        "copy of 16 MiB": lambda: target.copy_(source),
        "sleep of 2 ms": lambda: time.sleep(0.002),
    }


def block_ms(step: Callable[[], object], count: int) -> tuple[float, float]:
    """Return wall time and wall time less waiting, ms per step."""
    waited_ns, start_ns = family_wait_ns() or 0, time.perf_counter_ns()
    for _ in range(count):
        step()
    wall_ns = time.perf_counter_ns() - start_ns
    waited_ns = (family_wait_ns() or 0) - waited_ns
    return wall_ns / count / 1e6, (wall_ns - waited_ns) / count / 1e6


def series(step: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Return the first decile of wall times, and the median without waiting."""
    start = time.perf_counter()
    step()
    count = max(1, round(BLOCK_MS / 1e3 / max(1e-6, time.perf_counter() - start)))
    blocks = [block_ms(step, count) for _ in range(rounds)]
    walls, unwaited = zip(*blocks, strict=True)
    return quantiles(walls, n=10)[0], median(unwaited)


@contextmanager
def stopped(source: str, count: int) -> Iterator[Callable[[signal.Signals], None]]:
    """Start *count* processes of nobody that stand still until they are let run."""
    asked = [sys.executable, "-c", START, str(count), source, f"/proc/{os.getpid()}"]
    started = [int(pid) for pid in subprocess.check_output(asked, text=True).split()]

    def send(which: signal.Signals) -> None:
        for pid in started:
            os.kill(pid, which)
        time.sleep(0.02)

    try:
        time.sleep(0.5)
        send(STOP)
        yield send
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="blocks of a series")
    parser.add_argument("--series", type=int, default=9, help="pairs of series a row")
    asked = parser.parse_args()
    print(f"{'step':18} {'beside':12} {'wall':>6} {'unwaited':>9} {'worst':>6}")
    worst = 0.0
    for kind, source in (("burners", COMPUTE), ("streams", STREAM)):
        for count in BESIDE:
            with stopped(source, count) as send:
                for name, step in steps().items():
                    found = ratios(step, send, asked.rounds, asked.series)
                    worst = max(worst, found[2])
                    print(
                        f"{name:18} {count} {kind:10} {found[0]:6.2f} {found[1]:9.2f} {found[2]:6.2f}",
                        flush=True,
                    )
    print(f"the largest ratio of a series: {worst:.2f}")


def ratios(
    step: Callable[[], object],
    send: Callable[[signal.Signals], None],
    rounds: int,
    pairs: int,
) -> tuple[float, float, float]:
    """Return medians of both ratios over *pairs* of series, and the worst without waiting.

    They are taken to the quickest series alone: other programs may disturb that as well.
    """
    alone, beside = [], []
    for _ in range(pairs):
        send(STOP)
        alone.append(series(step, rounds)[0])
        send(GO)
        beside.append(series(step, rounds))
    walls = [wall / min(alone) for wall, _ in beside]
    unwaited = [rest / min(alone) for _, rest in beside]
    return median(walls), median(unwaited), max(unwaited)


if __name__ == "__main__":
    main()
