"""What the plugin reads of a step beside other ways to time it, on one GPU in one process.

Adds a line of JSON a step to ``$GPUPERF_RESULTS/truth.jsonl``: milliseconds per step by the
plugin, by CUDA events around many steps, by the wall clock around many steps with one
synchronisation, with one after each step, and by ``torch.utils.benchmark``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import pytest
import torch
from torch import nn
from torch.utils.benchmark import Timer


Step = Callable[[], object]

WARM_UP: Final = 10
STEPS: Final = 30
ROUNDS: Final = 9
SYNCED_STEPS: Final = 60
TIMER_S: Final = 1.0


def launches(device: str) -> Step:
    """Make many small kernels: the CPU is slower than the GPU."""
    x = torch.zeros(16, device=device)

    def step() -> None:
        for _ in range(200):
            x.add_(1)

    return step


def products(device: str) -> Step:
    """Make a few large kernels: the GPU is slower than the CPU."""
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        y = a
        for _ in range(8):
            y = y @ a
        return y

    return step


def bytes_moved(device: str) -> Step:
    x = torch.zeros(64 * 2**20, device=device)

    def step() -> None:
        for _ in range(4):
            x.mul_(1.0)

    return step


def training(device: str, *, reads: bool) -> Step:
    """Train a transformer; read the loss in each step, or leave it on the GPU."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.TransformerEncoder(layer, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(16, 128, 512, device=device)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item() if reads else loss.detach()

    return step


def on_the_cpu(device: str) -> Step:
    x = torch.zeros(16, device=device)

    def step() -> None:
        total = 0
        for i in range(40_000):
            total += i
        x.add_(total % 3)

    return step


STEPS_MADE: Final[dict[str, Callable[[str], Step]]] = {
    "launches": launches,
    "products": products,
    "bytes_moved": bytes_moved,
    "training": lambda device: training(device, reads=False),
    "training_item": lambda device: training(device, reads=True),
    "on_the_cpu": on_the_cpu,
}


def lower_quartile(values: list[float]) -> float:
    return quantiles(values, n=4, method="inclusive")[0]


def by_hand(step: Step) -> dict[str, float]:
    """Time *step* in four ways, in milliseconds."""
    for _ in range(WARM_UP):
        step()
    rounds = [round_ms(step) for _ in range(ROUNDS)]
    synced = [synced_ms(step) for _ in range(SYNCED_STEPS)]
    timer = Timer("step()", globals={"step": step})
    return {
        "wall_ms": lower_quartile([wall for wall, _ in rounds]),
        "events_ms": lower_quartile([events for _, events in rounds]),
        "synced_ms": lower_quartile(synced),
        "timer_ms": timer.blocked_autorange(min_run_time=TIMER_S).median * 1e3,
    }


def round_ms(step: Step) -> tuple[float, float]:
    """Time many steps by the wall clock and by events, with nothing in between."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    first.record()
    for _ in range(STEPS):
        step()
    last.record()
    torch.cuda.synchronize()
    wall_ms = (time.perf_counter() - start_s) * 1e3
    return wall_ms / STEPS, first.elapsed_time(last) / STEPS


def synced_ms(step: Step) -> float:
    start_s = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start_s) * 1e3


@pytest.mark.parametrize("name", STEPS_MADE)
def test_step(gpuperf: Any, name: str) -> None:
    torch.manual_seed(0)
    step = STEPS_MADE[name](gpuperf.device)
    gpuperf(step)
    found = gpuperf.measurement
    row = {
        "step": name,
        "pid": os.getpid(),
        "plugin_ms": {key: times.q25 for key, times in found.times.items()},
        "rounds": {key: times.samples for key, times in found.times.items()},
        "exact": dict(found.exact),
        "unmeasured": {str(key): str(why) for key, why in found.unmeasured.items()},
        "by_hand": by_hand(step),
    }
    with Path(os.environ["GPUPERF_RESULTS"], "truth.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
