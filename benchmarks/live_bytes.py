"""What counting live bytes costs a step of small operations on the CPU.

    python benchmarks/live_bytes.py

A GPT of three layers, 64 wide, on three sizes of batches: alone, under an empty dispatch
mode of torch, and counted, in turn. Ratios are of this process's CPU time with one
thread, medians of 31 steps. The plugin counts in a step of its own, apart from all
timing. Exits with 1 where 8 batches of 64 tokens are beyond the bar.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from statistics import median
from typing import Any
from typing import Final

import torch
from gpt import Gpt
from gpt import Savings
from gpt import Shape
from gpt import adamw
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_gpuperf.devices.cpu.live_memory import LiveBytes


SIZES: Final = ((4, 32), (8, 64), (16, 64))
BAR: Final = 1.6
STEPS: Final = 31
WARM_UP: Final = 5


class Empty(TorchDispatchMode):
    """Sees every operation, and does nothing with it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


def training(batch: int, tokens: int) -> Callable[[], None]:
    shape = Shape(layers=3, heads=4, width=64, tokens=tokens, vocabulary=65)
    model = Gpt(shape, Savings())
    optimizer = adamw(model, Savings())
    text = torch.randint(0, shape.vocabulary, (batch, tokens))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        _, loss = model(text, text)
        loss.backward()
        optimizer.step()

    return step


def ratios(step: Callable[[], None]) -> tuple[float, float, float]:
    """Milliseconds of *step*, and how many times that it takes watched and counted."""
    for _ in range(WARM_UP):
        step()
    gc.collect()
    gc.disable()
    empty, counting = Empty(), LiveBytes()
    spent: list[tuple[float, float, float]] = []
    for _ in range(STEPS):
        alone = spent_ms(step)
        with empty:
            watched = spent_ms(step)
        with counting:
            counted = spent_ms(step)
        spent.append((alone, watched, counted))
    counting.forget()
    gc.enable()
    alone, watched, counted = map(median, zip(*spent, strict=True))
    return alone, watched / alone, counted / alone


def spent_ms(step: Callable[[], None]) -> float:
    start_ns = time.process_time_ns()
    step()
    return (time.process_time_ns() - start_ns) / 1e6


def main() -> int:
    torch.set_num_threads(1)
    within = True
    for batch, tokens in SIZES:
        alone, watched, counted = ratios(training(batch, tokens))
        bar = f"   bar x{BAR}" if (batch, tokens) == (8, 64) else ""
        print(
            f"{batch:3} x {tokens} tokens: {alone:6.2f} ms, empty mode x{watched:.2f}, "
            f"counted x{counted:.2f}{bar}"
        )
        within = within and not (bar and counted > BAR)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
