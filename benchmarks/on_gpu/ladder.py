"""GPT-2 large on one GPU: real memory of each rung, beside what is predicted and published.

    python benchmarks/on_gpu/ladder.py --out FOLDER [--small]

Each rung has a process of its own, as the published numbers are of whole processes. A line of
JSON a rung goes to ``ladder.jsonl``: MiB that torch's allocator had allocated and reserved
at the peak, MiB that the driver says are in use, and seconds per step. The last rung of what
was published, two GPUs, is left out. Predictions and published numbers are those of
``examples/claims.toml``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final


EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

MIB: Final = 2**20
WARM_UP: Final = 3
STEPS: Final = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--small", action="store_true", help="a model for a rehearsal")
    parser.add_argument("--rung", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rung is not None:
        print(json.dumps(measured(options.rung, small=options.small)))
        return 0
    return climb(options.out, small=options.small)


def climb(out: Path, *, small: bool) -> int:
    """Ask a process a rung; a rung that fails leaves the others."""
    from claims import read_claims
    from models.gpt2 import LADDER

    worst = 0
    rungs = read_claims().ladder[: len(LADDER)]
    with (out / "ladder.jsonl").open("w", encoding="utf-8") as file:
        for number, rung in enumerate(rungs):
            program = [sys.executable, "-W", "ignore", __file__, "--out", str(out)]
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
    from models.gpt2 import LADDER
    from models.gpt2 import LARGE
    from models.gpt2 import Training

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


if __name__ == "__main__":
    sys.exit(main())
