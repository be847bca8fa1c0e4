"""The examples, run again and again, alone and beside processes that compute.

    python benchmarks/examples.py [--times 5] [--burners 2] [--device pretend]

``pytest examples --gpuperf`` on a copy of the examples without what earlier runs left:
``--times`` times alone and once beside ``--burners`` processes. Exits with 1 where a run
is red or takes longer than ``MOST_SECONDS``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from burners import burning


ROOT: Final = Path(__file__).resolve().parents[1]

MOST_SECONDS: Final = 180.0

LEFT: Final = ("__pycache__", ".pytest_cache", ".gpuperf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """How a run ended, and what pytest said last."""

    code: int
    seconds: float
    said: str

    @property
    def is_green(self) -> bool:
        return self.code == 0 and self.seconds <= MOST_SECONDS


def run_once(folder: Path, device: str) -> Once:
    shutil.rmtree(folder / "examples", ignore_errors=True)
    ignored = shutil.ignore_patterns(*LEFT)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=ignored)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q\n", encoding="utf-8")
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "examples", "--gpuperf", *device_of(device)],
        cwd=folder,
        env={**os.environ, "CI": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun
    if ended.returncode:
        print(ended.stdout)
    return Once(
        code=ended.returncode, seconds=seconds, said=ended.stdout.splitlines()[-1]
    )


def device_of(device: str) -> list[str]:
    return [f"--gpuperf-device={device}"] if device else []


def shown(name: str, once: Once) -> Once:
    print(f"{name:20} {once.seconds:6.0f} s  exit {once.code}  {once.said}", flush=True)
    return once


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--burners", type=int, default=2)
    parser.add_argument("--device", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        once = partial(run_once, Path(folder), asked.device)
        alone = [shown(f"alone, run {n + 1}", once()) for n in range(asked.times)]
        with burning(asked.burners):
            busy = shown(f"beside {asked.burners} burners", once())
    if alone:
        print(f"median alone {median(run.seconds for run in alone):.0f} s")
    return 0 if all(run.is_green for run in (*alone, busy)) else 1


if __name__ == "__main__":
    sys.exit(main())
