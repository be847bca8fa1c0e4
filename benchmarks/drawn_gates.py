"""Gates of unchanged code that draws its sizes: how often are they red?

    python benchmarks/drawn_gates.py [--devices simulated cpu] [--rounds 10] [--planted 2]
        [--minutes 60]

The ten suites of ``ab_null.py`` are stored on the simulated GPU and on the CPU, and gated
in so many rounds, each with a seed of its own: by default 200 gates. Then all sizes become
larger than any that was drawn before, and each gate must be red. Exits with 1 where
unchanged code is, or a shift is not.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ab_null import DRAWN


DEVICES: Final = ("simulated", "cpu")

STEP: Final = """
def test_step(gpuperf):
    x = torch.ones(ROWS + MORE, 64, device=gpuperf.device)
    gpuperf(lambda: (x @ x.T).sum())
"""

SHIFT: Final = 1000
"""Rows: more than twice what any suite draws at most beyond its least."""


def write(folder: Path, more: int) -> None:
    for name, draw in DRAWN.items():
        text = f"import torch\n{draw}MORE = {more}\n{STEP}"
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")


def gate(folder: Path, device: str, *more: str) -> dict[str, str]:
    """Run the suites once; return the outcome of each, by name."""
    typed = ("--gpuperf", f"--gpuperf-device={device}", "-q", *more)
    subprocess.run(
        [sys.executable, "-m", "pytest", *typed],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "CI"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    results = json.loads((folder / ".gpuperf/results.json").read_text("utf-8"))
    return {
        test.partition(".py")[0].removeprefix("test_"): str(found["outcome"])
        for test, found in results["tests"].items()
    }


def run(devices: Sequence[str], rounds: int, planted: int, minutes: float) -> bool:
    end = time.monotonic() + 60 * minutes
    is_right = True
    with tempfile.TemporaryDirectory() as name:
        for device in devices:
            folder = Path(name) / device
            folder.mkdir()
            (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
            write(folder, 0)
            gate(folder, device, "--gpuperf-update=missing")
            for more, times in ((0, rounds), (SHIFT, planted)):
                write(folder, more)
                found: Counter[tuple[str, str]] = Counter()
                for number in range(times):
                    if time.monotonic() > end:
                        break
                    seed = f"--gpuperf-seed={number + 1}"
                    found.update(gate(folder, device, seed).items())
                is_right &= show(device, "shifted" if more else "unchanged", found)
    return is_right


def show(device: str, what: str, found: Counter[tuple[str, str]]) -> bool:
    """Print what became of the gates; say whether all of them are right."""
    outcomes: Counter[str] = Counter()
    for (_, outcome), count in found.items():
        outcomes[outcome] += count
    print(f"{device}, {what}: {found.total()} gates: {dict(outcomes)}")
    wrong = {
        name: outcome
        for name, outcome in found
        if (outcome in RED) is (what == "unchanged")
    }
    if wrong:
        print(f"    wrong: {wrong}")
    return not wrong


RED: Final = ("regressed", "over budget")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=DEVICES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--planted", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    is_right = run(
        arguments.devices, arguments.rounds, arguments.planted, arguments.minutes
    )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
