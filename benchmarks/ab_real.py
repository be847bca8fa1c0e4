"""Real training steps against themselves on this machine: does the A/B judge blame anybody?

    python benchmarks/ab_real.py run [--minutes 40] [--out benchmarks/results/ab_real.json]
    python benchmarks/ab_real.py show [FILE]

Small training steps are compared with fresh copies of themselves in one process, on a
quiet machine and beside one and two processes that compute without end. In some
comparisons ``after`` is slowed: it ends with a busy wait for 3 % or 5 % of the time that
this very step just took, so that its times keep their noise. (More work of the same kind
cannot be dosed that finely.) Quiet and loaded comparisons of all kinds take turns for as
long as ``--minutes`` says, so that each meets every mood of the machine. A file that is
there is continued.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from itertools import count
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any
from typing import Final

import torch
from burners import burning
from torch import nn
from torch.nn import functional

from pytest_gpuperf.compare_steps.interleave import compare_steps
from pytest_gpuperf.devices.cpu.device import CpuDevice
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.ab import Answer


RESULTS: Final = Path(__file__).parent / "results" / "ab_real.json"

TOLERANCE: Final = 0.01
DETECT: Final = 0.03
SECONDS: Final = 4.0
"""Cap of one comparison; an unslowed pair on a quiet machine takes one to two seconds."""

BURNERS: Final = (0, 0, 0, 1, 0, 0, 0, 2)
"""Processes that compute beside, turn by turn."""

SLOWED: Final = (0.03, 0.05)
"""By how much ``after`` is slowed in the last comparisons of a turn."""

UNSLOWED: Final = 4
"""Comparisons of each workload with itself in a turn."""

Step = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One comparison; ``waited`` is the share of its time spent without a core."""

    workload: str
    burners: int
    slowed: float
    verdict: str
    speedup: float | None
    low: float | None
    high: float | None
    quads: int
    steps: int
    seconds: float
    waited: float
    load: float


class Attention(nn.Module):
    """Two encoder layers over 32 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(200, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(96, 200)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens))).flatten(0, 1)


def mlp() -> Step:
    model = nn.Sequential(
        nn.Linear(256, 384),
        nn.ReLU(),
        nn.Linear(384, 384),
        nn.ReLU(),
        nn.Linear(384, 10),
    )
    return training_step(model, torch.randn(32, 256), torch.randint(0, 10, (32,)))


def conv() -> Step:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    return training_step(model, torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)))


def attention() -> Step:
    tokens = torch.randint(0, 200, (4, 32))
    return training_step(Attention(), tokens, torch.randint(0, 200, (4 * 32,)))


WORKLOADS: Final[dict[str, Callable[[], Step]]] = {
    "mlp": mlp,
    "conv": conv,
    "attention": attention,
}


def training_step(model: nn.Module, batch: torch.Tensor, target: torch.Tensor) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(batch), target).backward()
        optimizer.step()

    return step


def slowed(step: Step, share: float) -> Step:
    """*step*, followed by a busy wait for *share* of the time it took."""
    now_ns = time.perf_counter_ns

    def slowed_step() -> None:
        start_ns = now_ns()
        step()
        end_ns = start_ns + round((now_ns() - start_ns) * (1 + share))
        while now_ns() < end_ns:
            pass

    return slowed_step if share else step


def trials(device: CpuDevice, minutes: float, seed: int) -> Iterator[Trial]:
    """Comparisons, turn after turn, until *minutes* have passed."""
    end = time.monotonic() + 60 * minutes
    for turn in count(seed // ((UNSLOWED + 1) * len(WORKLOADS))):
        cycle, position = divmod(turn, len(BURNERS))
        shares = [0.0] * UNSLOWED + [SLOWED[cycle % len(SLOWED)]]
        with burning(BURNERS[position]):
            for share, workload in product(shares, WORKLOADS):
                if time.monotonic() > end:
                    return
                seed += 1
                yield trial(device, workload, BURNERS[position], share, seed)


def trial(
    device: CpuDevice, workload: str, burners: int, share: float, seed: int
) -> Trial:
    torch.manual_seed(seed)
    make = WORKLOADS[workload]
    before, after = Subject(step=make()), Subject(step=slowed(make(), share))
    start_ns, waited_ns = device.now_ns(), device.waiting_ns() or 0
    compared = compare_steps(
        device,
        before,
        after,
        seconds=SECONDS,
        tolerance=TOLERANCE,
        detect=DETECT,
        seed=seed,
    )
    spent_ns = device.now_ns() - start_ns
    return Trial(
        workload=workload,
        burners=burners,
        slowed=share,
        verdict=compared.answer.value,
        speedup=rounded(compared.speedup),
        low=rounded(compared.least_speedup),
        high=rounded(compared.most_speedup),
        quads=compared.quads,
        steps=compared.steps,
        seconds=round(spent_ns / 1e9, 2),
        waited=round(((device.waiting_ns() or 0) - waited_ns) / spent_ns, 3),
        load=round(os.getloadavg()[0], 2),
    )


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def run(minutes: float, out: Path) -> None:
    device = CpuDevice()
    out.parent.mkdir(exist_ok=True)
    done = load(out)[1] if out.exists() else []
    for one in trials(device, minutes, len(done)):
        done.append(one)
        if len(done) % len(WORKLOADS) == 0:
            save(done, device, out)
    save(done, device, out)


def save(done: Sequence[Trial], device: CpuDevice, out: Path) -> None:
    """Write columns once and a line a trial."""
    rows = [list(asdict(one).values()) for one in done]
    environment = device.environment()
    heading = {
        "hardware": environment.hardware.key,
        "software": dict(environment.software),
        "tolerance": TOLERANCE,
        "detect": DETECT,
        "columns": list(asdict(done[0])),
    }
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps(heading)[:-1] + ', "trials": [\n' + lines + "\n]}\n"
    out.write_text(text, encoding="utf-8")


def load(path: Path) -> tuple[dict[str, Any], list[Trial]]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    columns = stored["columns"]
    rows = [dict(zip(columns, row, strict=True)) for row in stored["trials"]]
    return stored, [Trial(**row) for row in rows]


def show(path: Path) -> None:
    stored, done = load(path)
    print(f"{stored['hardware']}, torch {stored['software']['torch']}")
    print(f"tolerance {TOLERANCE:.0%}, detect {DETECT:.0%}, cap {SECONDS:.0f} s\n")
    columns = "burners slowed workload      n  slower faster  same  incl. "
    print(columns + " quads  steps      s  waited load")
    for burners in sorted(set(BURNERS)):
        for share in (0.0, *SLOWED):
            for workload in (*WORKLOADS, None):
                print_row(done, burners, share, workload)
    unchanged = [one for one in done if not one.slowed]
    verdicts = Counter(one.verdict for one in unchanged)
    print(f"\nnothing changed: {len(unchanged)} verdicts, {dict(verdicts)}")


def print_row(
    done: Sequence[Trial], burners: int, share: float, workload: str | None
) -> None:
    chosen = [
        one
        for one in done
        if (one.burners, one.slowed) == (burners, share)
        and workload in {one.workload, None}
    ]
    if not chosen:
        return
    verdicts = Counter(one.verdict for one in chosen)
    order = (Answer.SLOWER, Answer.FASTER, Answer.SAME, Answer.INCONCLUSIVE)
    counted = " ".join(f"{verdicts[answer.value]:6}" for answer in order)
    print(
        f"{burners:7} {share:6.0%} {workload or 'all':10} {len(chosen):4} {counted} "
        f"{fmean(one.quads for one in chosen):6.1f} "
        f"{fmean(one.steps for one in chosen):6.0f} "
        f"{fmean(one.seconds for one in chosen):6.2f} "
        f"{fmean(one.waited for one in chosen):6.1%} "
        f"{fmean(one.load for one in chosen):5.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.minutes, arguments.out)
        show(arguments.out)
    else:
        show(arguments.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
