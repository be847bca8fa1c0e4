"""Predicts, without a GPU, the memory of a published ladder of GPT-2 large at full size.

    python benchmarks/ladder.py

36 layers of width 1280 with 20 heads, batch 32, 128 tokens, vocabulary 65, float32,
AdamW. Each rung adds one saving to the one above. The first two were recorded on a GPU by
the ladder's author: the allocator's own totals stand beside the predictions. What was
published is, as far as is known, what nvidia-smi shows, so there the steps from rung
to rung are compared.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory import StepMemory
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))

from published_gpt import LARGE, Savings, Training


MIB: Final = 2**20
BATCH: Final = 32

MOST_OFF: Final = 0.01
"""Of the recorded allocated totals."""
MOST_POINTS: Final = 0.05
"""Between predicted and published steps from rung to rung."""
MOST_SECONDS: Final = 60
MOST_HOST_MIB: Final = 8 * 1024


@dataclass(frozen=True, kw_only=True)
class Rung:
    name: str
    savings: Savings
    published_mib: int
    recorded_mib: float | None = None


RUNGS: Final = (
    Rung(name="plain", savings=Savings(), published_mib=36272, recorded_mib=34784.0),
    Rung(
        name="2 micro-batches",
        savings=Savings(micro_batches=2),
        published_mib=25194,
        recorded_mib=22899.9,
    ),
    Rung(
        name="+ checkpointing",
        savings=Savings(micro_batches=2, checkpointing=True),
        published_mib=15394,
    ),
    Rung(
        name="+ foreach=False",
        savings=Savings(micro_batches=2, checkpointing=True, foreach=False),
        published_mib=13108,
    ),
)


def predict(savings: Savings) -> StepMemory:
    with simulated_gpu(values=False), watching_memory(from_now=True) as audit:
        training = Training(LARGE, savings, batch=BATCH)
        audit.step(training)
        audit.step(training)
    return audit.memories()[1]


def main() -> int:
    print(
        "MiB: allocated, recorded, reserved; step from the rung above, published step"
    )
    missed = []
    start_s = time.process_time()
    above: tuple[float, Rung] | None = None
    for rung in RUNGS:
        memory = predict(rung.savings)
        allocated = memory.allocated_bytes / MIB
        cells = [f"{rung.name:<16} {allocated:9.1f} {rung.recorded_mib or '':>9}"]
        if rung.recorded_mib:
            off = allocated / rung.recorded_mib - 1
            cells.append(f"{off:+7.2%}")
            missed += [f"{rung.name}: off by {off:+.2%}"] * (abs(off) > MOST_OFF)
        cells.append(f"{memory.reserved_bytes / MIB:9.1f}")
        if above is not None:
            step = allocated / above[0] - 1
            published = rung.published_mib / above[1].published_mib - 1
            cells.append(f"{step:+7.1%} {published:+9.1%}")
            missed += [f"{rung.name}: step off"] * (abs(step - published) > MOST_POINTS)
        print(*cells, flush=True)
        above = allocated, rung
    seconds = time.process_time() - start_s
    host_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{seconds:.1f} s of CPU time, {host_mib:.0f} MiB of host memory")
    missed += ["time"] * (seconds > MOST_SECONDS)
    missed += ["host memory"] * (host_mib > MOST_HOST_MIB)
    print("missed: " + "; ".join(missed) if missed else "every bar is kept")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
