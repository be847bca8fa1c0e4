"""``gpuperf ab`` on two sides that are the same commit: does it blame anybody?

    python benchmarks/ab_command.py run [--comparisons 200] [--minutes 60] [--out FILE]
    python benchmarks/ab_command.py show [FILE]

Small training steps (an MLP, a convolution, two attention layers) stand in a repository
with one commit, which the command compares with itself, as a user types it: alone on the
machine, and beside a process that computes without end, by turns. It ends when each of
the two has ``--comparisons`` verdicts, or ``--minutes`` have passed. A file that is
there is continued. Exits with 1 where more than 0.5 % of all verdicts blame or praise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import continued
from burners import burning
from continued import load


RESULTS: Final = Path(__file__).parent / "results" / "ab_command.jsonl"
WORST: Final = 0.005
"""Share of false verdicts that is allowed."""

FALSE: Final = ("slower", "faster")
COPIES: Final = 4
"""Tests of each workload in one command."""

SUITE: Final = f"""
import pytest
import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(200, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(96, 200)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens))).flatten(0, 1)


def mlp():
    model = nn.Sequential(nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 10))
    return model, torch.randn(32, 256), torch.randint(0, 10, (32,))


def conv():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )
    return model, torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))


def attention():
    tokens = torch.randint(0, 200, (4, 32))
    return Attention(), tokens, torch.randint(0, 200, (4 * 32,))


@pytest.mark.parametrize("seed", range({COPIES}))
@pytest.mark.parametrize("workload", [mlp, conv, attention])
def test_step(gpuperf, workload, seed):
    torch.manual_seed(seed)
    model, batch, target = workload()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(batch), target).backward()
        optimizer.step()

    gpuperf(step)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One verdict of one command; ``change`` and ``interval`` are in percent."""

    burners: int
    command: int
    test: str
    verdict: str
    change: str
    interval: str
    sees: str
    load: float


def make_repository(folder: Path) -> None:
    (folder / "test_steps.py").write_text(SUITE, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for arguments in (
        ("init", "--quiet"),
        ("add", "."),
        (*author, "commit", "--quiet", "-m", "one"),
    ):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)  # noqa: S607


def compare(folder: Path, burners: int, number: int) -> list[Row]:
    """Type the command once, and read its table."""
    typed = ("ab", "HEAD", "HEAD", "--device=cpu", "--markdown")
    with burning(burners):
        done = subprocess.run(
            [sys.executable, "-m", "pytest_gpuperf", *typed],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        load = round(os.getloadavg()[0], 2)
    if done.returncode not in {0, 1}:
        sys.exit(f"the command ended with {done.returncode}")
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    return [
        Row(
            burners=burners,
            command=number,
            test=test.strip("`"),
            verdict=verdict,
            change=change,
            interval=interval,
            sees=sees,
            load=load,
        )
        for verdict, metric, _, _, change, interval, sees, test in (
            row for row in cells if len(row) == 8
        )
        if metric == "step_ms"
    ]


def run(comparisons: int, minutes: float, out: Path) -> None:
    end = time.monotonic() + 60 * minutes
    out.parent.mkdir(exist_ok=True)
    rows = load(out, Row)
    with tempfile.TemporaryDirectory() as folder:
        make_repository(Path(folder))
        while time.monotonic() < end:
            counts = Counter(row.burners for row in rows)
            burners = min((0, 1), key=lambda number: counts[number])
            if counts[burners] >= comparisons:
                return
            number = 1 + max((row.command for row in rows), default=0)
            found = compare(Path(folder), burners, number)
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(row)) + "\n" for row in found)
            rows += found


def show(rows: Sequence[Row]) -> bool:
    """Print the table; say whether few enough verdicts are false."""
    print("burners  comparisons  slower  faster  same  inconclusive  load")
    for burners in sorted({row.burners for row in rows}):
        chosen = [row for row in rows if row.burners == burners]
        counts = Counter(row.verdict for row in chosen)
        load = sum(row.load for row in chosen) / len(chosen)
        print(
            f"{burners:7}  {len(chosen):11}  {counts['slower']:6}  {counts['faster']:6}  "
            f"{counts['same']:4}  {counts['inconclusive']:12}  {load:4.1f}"
        )
    wrong = [row for row in rows if row.verdict in FALSE]
    for row in wrong:
        print(f"{row.verdict}: {row.test} {row.change} ({row.interval})")
    share = len(wrong) / len(rows) if rows else 1.0
    print(f"false: {len(wrong)} of {len(rows)} ({share:.2%}), bar {WORST:.1%}")
    return share <= WORST


def main() -> int:
    return continued.main(
        str(__doc__), RESULTS, 200, run, lambda path: show(load(path, Row))
    )


if __name__ == "__main__":
    sys.exit(main())
