"""``gpuperf ab`` on a commit and itself, where processes draw: whom does it blame?

    python benchmarks/ab_null.py run [--rounds 20] [--minutes 120] [--out FILE] [--old FOLDER]
    python benchmarks/ab_null.py show [FILE]

Ten small suites stand in a repository with one commit: sizes drawn by the operating
system, by torch, ``random``, numpy and hash order, kernels chosen by their time or by
addresses, threads, memory that differs, and nothing of the kind. A round compares all ten
with themselves, a suite of steps that draw nothing, and three steps that got 10 % slower,
a wait and a MiB more. ``--old`` does the same by the package of another checkout, in turn.
A file that is there is continued. Exits with 1 where a comparison of a commit with itself
blames, or one of what got worse does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from continued import load


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

NULL: Final = ("drawn", "steady")
BLAMED: Final = ("worse", "slower")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One command; ``verdicts`` are all that it gave, by test."""

    version: str
    suite: str
    exit_status: int
    seconds: float
    verdicts: Mapping[str, Sequence[str]]


def commit(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    git = (
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b.example",
    )
    for typed in (("add", "."), ("commit", "--quiet", "-m", "one")):
        subprocess.run([*git, *typed], check=True)


def make_suites(folder: Path) -> dict[str, tuple[Path, str]]:
    """Return where each suite is, and the commit to compare HEAD with."""
    files = {f"test_{n}.py": f"import torch\n{d}{STEP}" for n, d in DRAWN.items()}
    suites = {
        "drawn": ([files], "HEAD"),
        "steady": ([{"test_it.py": STEADY}], "HEAD"),
        "planted": (
            [{"test_it.py": PLANTED.replace("= 0", f"= {more}")} for more in (0, 1)],
            "HEAD~1",
        ),
    }
    for name, (commits, _) in suites.items():
        (folder / name).mkdir()
        subprocess.run(["git", "init", "--quiet", str(folder / name)], check=True)  # noqa: S607
        for number, made in enumerate(commits):
            commit(
                folder / name, {**made, "pytest.ini": "[pytest]\n", "n": str(number)}
            )
    return {name: (folder / name, base) for name, (_, base) in suites.items()}


def compare(version: str, old: Path, suite: str, folder: Path, base: str) -> Row:
    """Type the command once, and read its table."""
    path = {"PYTHONPATH": str(old)} if version == "old" else {}
    start = time.monotonic()
    typed = ("ab", base, "HEAD", "--device=cpu", "--markdown")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_gpuperf", *typed],
        cwd=folder,
        env={**os.environ, **path},
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
        version=version,
        suite=suite,
        exit_status=done.returncode,
        seconds=round(time.monotonic() - start, 1),
        verdicts=verdicts,
    )


def run(rounds: int, minutes: float, out: Path, old: Path | None) -> None:
    end = time.monotonic() + 60 * minutes
    out.parent.mkdir(exist_ok=True)
    counts = Counter((row.version, row.suite) for row in load(out, Row))
    versions = ("now",) if old is None else ("old", "now")
    with tempfile.TemporaryDirectory() as folder:
        suites = make_suites(Path(folder))
        turns = [(v, s) for _ in range(rounds) for s in suites for v in versions]
        for version, suite in turns:
            if counts[version, suite] > 0:
                counts[version, suite] -= 1
                continue
            if time.monotonic() > end:
                return
            row = compare(version, old or Path(), suite, *suites[suite])
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")


def show(rows: Sequence[Row]) -> bool:
    """Print the table; say whether the newest version blames as it should."""
    is_right = bool(rows)
    for version in sorted({row.version for row in rows}):
        chosen = [row for row in rows if row.version == version]
        null = [v for r in chosen if r.suite in NULL for v in r.verdicts.values()]
        blamed = sum(any(said in BLAMED for said in verdicts) for verdicts in null)
        print(f"{version}: {blamed} of {len(null)} unchanged tests blamed,", end=" ")
        print(dict(Counter(said for verdicts in null for said in verdicts)))
        planted = [row for row in chosen if row.suite == "planted"]
        for test in sorted({test for row in planted for test in row.verdicts}):
            found = sum(
                any(said in BLAMED for said in row.verdicts.get(test, ()))
                for row in planted
            )
            print(f"    {test}: found in {found} of {len(planted)}")
            is_right &= version == "old" or found == len(planted)
        for suite in ("drawn", "steady", "planted"):
            took = [row.seconds for row in chosen if row.suite == suite]
            if took:
                print(
                    f"    {suite}: {median(took):.1f} s a command, median of {len(took)}"
                )
        is_right &= version == "old" or not blamed
    return is_right


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--old", type=Path)
    arguments = parser.parse_args()
    path: Path = arguments.file
    if arguments.command == "run":
        path = arguments.out
        run(arguments.rounds, arguments.minutes, path, arguments.old)
    return 0 if show(load(path, Row)) else 1


if __name__ == "__main__":
    sys.exit(main())
