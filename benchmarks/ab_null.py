"""``gpuperf ab`` on a commit and itself, and on one that got worse: whom does it blame?

    python benchmarks/ab_null.py run [--rounds 20] [--minutes 120] [--out FILE]
    python benchmarks/ab_null.py show [FILE]

Ten small suites stand in a repository with one commit: sizes drawn by the operating
system, by torch, ``random``, numpy and hash order, kernels chosen by their time or by
addresses, threads, memory that differs, and nothing of the kind. A round compares all ten
with themselves, a suite of steps that draw nothing, three steps that got 10 % slower, a
sync and a MiB more, and training steps (an MLP, a convolution, two attention layers) with
5 and with 10 % more work: products of matrices, as many as take so long on this machine. A
file that is there is continued. Exits with 1 where a comparison of a commit with itself
blames, or one of what got 10 % slower, a sync or a MiB more does not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final


RESULTS: Final = Path(__file__).parent / "results" / "ab_null.jsonl"

STEP: Final = """
def test_step(gpuperf):
    x = torch.ones(ROWS, 64, device=gpuperf.device)
    gpuperf(lambda: (x @ x.T).sum())
"""

DRAWN: Final = {
    "system": "import os\nROWS = 600 + 200 * (os.urandom(1)[0] % 2)\n",
    "uuid": "import uuid\nROWS = 500 + uuid.uuid4().int % 400\n",
    "torch": "ROWS = int(torch.randint(500, 900, ()))\n",
    "random": "import random\nROWS = random.choice([500, 600, 700, 800])\n",
    "numpy": "import numpy as np\nROWS = int(np.random.default_rng().integers(500, 900))\n",
    "strings": "ROWS = 500 + 100 * list({'a', 'b', 'c', 'd'}).index('a')\n",
    "addresses": "ROWS = 500 + id(object()) // 16 % 400\n",
    "threads": "import os\nROWS = 700\ntorch.set_num_threads(1 + os.urandom(1)[0] % 2)\n",
    "autotuned": (
        "import time\n"
        "def cost(rows):\n"
        "    x, start = torch.ones(rows, 64), time.perf_counter_ns()\n"
        "    x @ x.T\n"
        "    return time.perf_counter_ns() - start\n"
        "ROWS = min((640, 660), key=cost)\n"
    ),
    "nothing": "ROWS = 700\n",
}

STEADY: Final = """
import pytest, torch
@pytest.mark.parametrize("rows", [500, 700, 900])
def test_step(gpuperf, rows):
    x = torch.ones(rows, 64)
    gpuperf(lambda: (x @ x.T).sum())
"""

PLANTED: Final = """
import torch
MORE = 0
def test_time(gpuperf):
    x = torch.ones(128, 128)
    gpuperf(lambda: [x @ x for _ in range(20 + 2 * MORE)][0])
def test_wait(gpuperf):
    x = torch.ones(64, 64)
    gpuperf(lambda: (x @ x).sum().item() if MORE else (x @ x).sum())
def test_mib(gpuperf):
    gpuperf(lambda: torch.ones(2**18 * (8 + MORE) + MORE))
"""

TRAINED: Final = """
import pytest, torch
from torch import nn

MORE = 0
PRODUCTS = {}

def mlp():
    model = nn.Sequential(nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 10))
    return model, torch.randn(32, 256)

def conv():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )
    return model, torch.randn(8, 3, 32, 32)

def attention():
    layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Linear(96, 200)), torch.randn(4, 32, 96)

def step_of(workload, products):
    torch.manual_seed(0)
    (model, batch), extra = workload(), torch.randn(48, 48)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    def step():
        optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        optimizer.step()
        for _ in range(products):
            extra @ extra
    return step

@pytest.mark.parametrize("workload", [mlp, conv, attention])
def test_step(gpuperf, workload):
    gpuperf(step_of(workload, MORE * PRODUCTS.get(workload.__name__, 0)))
"""

COUNT: Final = """
import json, time
from statistics import quantiles
torch.set_num_threads(1)
def taken(call):
    start = time.thread_time()
    call()
    return time.thread_time() - start
def products(workload):
    bare, more = step_of(workload, 0), step_of(workload, 1000)
    rounds = [(taken(bare), taken(more)) for _ in range(40)][10:]
    step, with_products = (quantiles(times, n=4)[0] for times in zip(*rounds))
    return 1000 * step / (with_products - step)
print(json.dumps({each.__name__: products(each) for each in (mlp, conv, attention)}))
"""
"""Prints, behind ``TRAINED``, how many products take as much CPU time as a step."""

NULL: Final = ("drawn", "steady")
FOUND: Final = {"planted": 1.0, "5 %": 0.0, "10 %": 0.0}
"""Share of what got worse that must be found, by suite; pairs see little on busy cores."""

BLAMED: Final = ("worse", "slower")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One command; ``verdicts`` are all that it gave, by test."""

    suite: str
    exit_status: int
    seconds: float
    verdicts: Mapping[str, Sequence[str]]


def commit(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    author = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for typed in (("add", "."), ("commit", "--quiet", "-m", "one")):
        subprocess.run(["git", "-C", str(folder), *author, *typed], check=True)  # noqa: S607


def make_suites(folder: Path) -> dict[str, tuple[Path, str]]:
    """Return where each suite is, and the commit to compare HEAD with."""
    suites = {
        "drawn": [
            {f"test_{n}.py": f"import torch\n{d}{STEP}" for n, d in DRAWN.items()}
        ],
        "steady": [{"test_it.py": STEADY}],
        "planted": worse(PLANTED),
        "5 %": worse(trained(0.05)),
        "10 %": worse(trained(0.10)),
    }
    for name, commits in suites.items():
        (folder / name).mkdir()
        subprocess.run(["git", "init", "--quiet", str(folder / name)], check=True)  # noqa: S607
        for number, made in enumerate(commits):
            files = {**made, "pytest.ini": "[pytest]\n", "n": str(number)}
            commit(folder / name, files)
    return {
        name: (folder / name, "HEAD~1" if commits[1:] else "HEAD")
        for name, commits in suites.items()
    }


def worse(text: str) -> list[dict[str, str]]:
    return [{"test_it.py": text.replace("MORE = 0", f"MORE = {n}")} for n in (0, 1)]


def trained(share: float) -> str:
    """Count, on this machine and now, the products that take *share* of each step."""
    command = [sys.executable, "-c", TRAINED + COUNT]
    counted = json.loads(subprocess.check_output(command, text=True))
    products = {name: max(1, round(share * count)) for name, count in counted.items()}
    return TRAINED.replace("PRODUCTS = {}", f"PRODUCTS = {products}")


def compare(suite: str, folder: Path, base: str) -> Row:
    """Type the command once, and read its table."""
    start = time.monotonic()
    typed = ("ab", base, "HEAD", "--device=cpu", "--markdown")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpuperf", *typed],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    cells = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    verdicts: dict[str, list[str]] = {}
    for row in cells:
        if len(row) == 8 and "`" in row[7]:
            verdicts.setdefault(row[7].strip("`"), []).append(row[0])
    return Row(
        suite=suite,
        exit_status=done.returncode,
        seconds=round(time.monotonic() - start, 1),
        verdicts=verdicts,
    )


def load(path: Path) -> list[Row]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Row(**json.loads(line)) for line in lines]


def run(rounds: int, minutes: float, out: Path) -> None:
    end = time.monotonic() + 60 * minutes
    out.parent.mkdir(exist_ok=True)
    counts = Counter(row.suite for row in load(out))
    with tempfile.TemporaryDirectory() as folder:
        suites = make_suites(Path(folder))
        for suite in [*suites] * rounds:
            if counts[suite] > 0:
                counts[suite] -= 1
                continue
            if time.monotonic() > end:
                return
            row = compare(suite, *suites[suite])
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")


def is_blamed(verdicts: Sequence[str]) -> bool:
    return any(said in BLAMED for said in verdicts)


def show(rows: Sequence[Row]) -> bool:
    """Print the table; say whether it blames as it should."""
    null = [v for row in rows if row.suite in NULL for v in row.verdicts.values()]
    blamed = sum(map(is_blamed, null))
    print(f"{blamed} of {len(null)} unchanged tests blamed,", end=" ")
    print(dict(Counter(said for verdicts in null for said in verdicts)))
    is_right = bool(rows) and not blamed
    for suite, bar in FOUND.items():
        chosen = [row for row in rows if row.suite == suite]
        tests = [t for row in chosen for t in row.verdicts.items()]
        found = [test for test, verdicts in tests if is_blamed(verdicts)]
        missed = dict(Counter(test for test, _ in tests) - Counter(found))
        print(f"    {suite}: found {len(found)} of {len(tests)}, bar {bar:.0%}", missed)
        is_right &= len(found) >= bar * len(tests)
    for suite in (*NULL, *FOUND):
        took = [row.seconds for row in rows if row.suite == suite]
        if took:
            print(f"    {suite}: {median(took):.1f} s a command, median of {len(took)}")
    return is_right


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    path: Path = arguments.file
    if arguments.command == "run":
        path = arguments.out
        run(arguments.rounds, arguments.minutes, path)
    return 0 if show(load(path)) else 1


if __name__ == "__main__":
    sys.exit(main())
