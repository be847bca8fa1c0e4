"""What the pretend GPU costs: the same training step on the CPU and on it, in turn.

    python benchmarks/pretend.py [tiny] [compute]

A third figure is what it costs to watch the memory of the step as well. Ratios are of this process's CPU time with one thread, medians over pairs of steps.
``tiny`` is a step of small operations, where what is around each of them shows;
``compute`` is one whose time is spent in matrix products.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

import torch
from torch import nn

from pytest_gpuperf.devices.pretend import pretend_gpu
from pytest_gpuperf.devices.pretend.memory import PRETEND_MEMORY
from pytest_gpuperf.devices.pretend.memory_watch import watching_memory


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
        live, PRETEND_MEMORY.live = PRETEND_MEMORY.live, None
        plain = spent_ms(step)
        PRETEND_MEMORY.live = live
        return plain, spent_ms(step)


def compare(name: str, size: Size) -> None:
    with pretend_gpu() as gpu:
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
        f"{name:<8} {on_host:8.1f} ms on the CPU {on_device:8.1f} ms pretending "
        f"x{on_device / on_host:.2f}   bar x{size.bar:g}   "
        f"{audit.totals.ops} ops, {audit.totals.syncs} syncs"
    )
    print(
        f"{'':<8} {unwatched:8.1f} ms unwatched {with_memory:8.1f} ms with memory "
        f"x{with_memory / unwatched:.2f}   bar x{size.watched_bar:g}"
    )


def main() -> int:
    torch.set_num_threads(1)
    asked = sys.argv[1:] or list(SIZES)
    if unknown := set(asked) - set(SIZES):
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SIZES)}")
        return 4
    for name in asked:
        compare(name, SIZES[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
