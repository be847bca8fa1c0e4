"""Do runs that share a GPU measure what one alone measures, and do two GPUs help?

    python benchmarks/virtual_gpus.py [--repeats 3]

A virtual GPU is a file whose lock a kernel holds for 7 ms: two kernels at once take
turns, as on a GPU. Twelve tests prepare themselves for 0.3 s and run 15 kernels before
they hand their step, two kernels, to the fixture. They are measured alone; by two
independent runs at once; under ``-n4``, beside ordinary tests that use the GPU too; and
on two virtual GPUs. Medians of a test's steps are compared with those alone, and the
time from the first test's beginning to the last one's end with that on one GPU. The
device is the scripted one with a real clock in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from scripted import ON_PATH


MOST_APART: Final = 0.01
MOST_APART_WORST: Final = 0.02
MOST_SHARE: Final = 0.6

CONFTEST: Final = """
import fcntl
import os
import time

from scripted_device import ScriptedDevice

ScriptedDevice.now_ns = lambda self: time.perf_counter_ns()
ScriptedDevice.process_ns = ScriptedDevice.now_ns
GPU = os.open("gpu-" + os.environ.get("CUDA_VISIBLE_DEVICES", "a"), os.O_RDWR | os.O_CREAT)


def kernel():
    fcntl.flock(GPU, fcntl.LOCK_EX)
    until = time.perf_counter() + 0.007
    time.sleep(0.006)
    while time.perf_counter() < until:
        pass
    fcntl.flock(GPU, fcntl.LOCK_UN)
"""

TESTS: Final = """
import time

import pytest
from conftest import kernel


@pytest.mark.parametrize("number", range(12))
def test_timed(gpuperf, number):
    begun = time.time()
    time.sleep(0.3)
    for _ in range(15):
        kernel()
    gpuperf(lambda: (kernel(), kernel()))
    with open("stage.txt", "a") as file:
        file.write(f"{begun} {time.time()}\\n")


@pytest.mark.parametrize("number", range(8))
def test_ordinary(number):
    for _ in range(15):
        kernel()
"""


class Project:
    """A copy of the tests, whose virtual GPUs lie in *shared*."""

    def __init__(self, folder: Path, slots: Sequence[str]) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
        (folder / "test_steps.py").write_text(TESTS, encoding="utf-8")
        script = {"slots": list(slots), "*": {"step_ms": 0.0}}
        (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
        for name in slots:
            gpu = folder.parent / f"gpu-{name}"
            gpu.touch()
            (folder / f"gpu-{name}").symlink_to(gpu)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **ON_PATH,
            "GPUPERF_SCRIPT": "script.json",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_gpuperf.plugin,xdist.plugin",
            "XDG_RUNTIME_DIR": str(self.folder.parent),
        }
        environment.pop("CI", None)
        options = (
            "--gpuperf",
            "--gpuperf-device=scripted",
            "--override-ini=gpuperf_lock=all",
        )
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", *options, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
        )

    def medians_ms(self) -> Mapping[str, float]:
        path = self.folder / ".gpuperf" / "pending-scripted.json"
        pending = json.loads(path.read_text(encoding="utf-8"))
        return {
            test: entry["runs"][0]["times"]["step_ms"]["q50"]
            for test, entry in pending["tests"].items()
        }

    def stage_seconds(self) -> float:
        lines = (self.folder / "stage.txt").read_text().splitlines()
        times = [tuple(map(float, line.split())) for line in lines]
        return max(ended for _, ended in times) - min(begun for begun, _ in times)


def measured(root: Path, slots: Sequence[str], *runs: Sequence[str]) -> list[Project]:
    """Start all *runs* at once, wait for them, and return their projects."""
    folder = tempfile.mkdtemp(dir=root)
    projects = [Project(Path(folder, str(n)), slots) for n in range(len(runs))]
    started = [p.start(*run) for p, run in zip(projects, runs, strict=True)]
    codes = [process.wait() for process in started]
    if any(codes):
        sys.exit(f"pytest ended with {codes}")
    return projects


def apart(projects: Sequence[Project], alone_ms: float) -> tuple[float, float]:
    """Return how far the medians lie from those alone: the middle test, the worst."""
    found = [ms / alone_ms - 1 for p in projects for ms in p.medians_ms().values()]
    return abs(median(found)), max(map(abs, found))


def repeat(root: Path) -> dict[str, float]:
    """Measure once in each way; return what the bars are about."""
    (alone,) = measured(root, "a", ())
    alone_ms = median(alone.medians_ms().values())
    two_runs = apart(measured(root, "a", (), ()), alone_ms)
    workers = apart(measured(root, "a", ("-n4",)), alone_ms)
    (pair,) = measured(root, "ab", ())
    return {
        "alone, worst test": apart([alone], alone_ms)[1],
        "two runs, middle test": two_runs[0],
        "two runs, worst test": two_runs[1],
        "-n4, middle test": workers[0],
        "-n4, worst test": workers[1],
        "two GPUs, share of the time": pair.stage_seconds() / alone.stage_seconds(),
    }


BARS: Final = {
    "two runs, middle test": MOST_APART,
    "two runs, worst test": MOST_APART_WORST,
    "-n4, middle test": MOST_APART,
    "-n4, worst test": MOST_APART_WORST,
    "two GPUs, share of the time": MOST_SHARE,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        rows = [repeat(Path(folder)) for _ in range(repeats)]
    kept = True
    for name in rows[0]:
        value, bar = median(row[name] for row in rows), BARS.get(name)
        verdict = "" if bar is None else f"bar {bar:.0%}"
        kept = kept and (bar is None or value <= bar)
        print(f"{name:28}  {value:7.2%}  {verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
