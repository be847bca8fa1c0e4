"""What the plugin itself costs, each figure against its own baseline in the same run.

    python benchmarks/overhead.py [collect] [loop] [start]

``collect``  pytest --co with the plugin and with an empty one, in turn: pytest itself looks
             for every entry point where a plugin is named, and by default in each run
``loop``     the timed loop and a bare ``for`` loop that call the same empty step, in turn
``start``    a run through the warm fork server: to the first line of its test, to its
             result
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from resource import RUSAGE_CHILDREN
from resource import getrusage
from statistics import median
from subprocess import DEVNULL
from subprocess import run
from typing import Final

from pytest_gpuperf.devices.cpu.device import CpuDevice
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import time_round
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner.fork_server import HEAVY_MODULES
from pytest_gpuperf.runner.fork_server import ForkServer
from pytest_gpuperf.runner.fork_server import Job
from pytest_gpuperf.runner.request import Project
from pytest_gpuperf.runner.request import RunRequest


PAIRS: Final = 151
UNMEASURED_PAIRS: Final = 3
BLOCKS: Final = 101
STEPS: Final = 100_000
RUNS: Final = 41

COLLECTED: Final = """
import pytest
@pytest.mark.parametrize("n", range(100))
def test_plain(n): pass
@pytest.mark.parametrize("n", range(100))
def test_step(gpuperf, n): gpuperf(int)
"""

COUNTS_MODULES: Final = """
import json, sys
def pytest_unconfigure(config):
    with open("modules.json", "w") as file: json.dump(sorted(sys.modules), file)
"""

STARTED: Final = """
import time
def test_step(gpuperf):
    started_ns = time.monotonic_ns()
    with open("started.txt", "w") as file: file.write(str(started_ns))
    gpuperf(lambda: None)
"""


def line(name: str, value: str, bar: str) -> None:
    print(f"{name:<58} {value:>16}   {bar}")


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return f"{ordered[tenth]:.1f} to {ordered[-1 - tenth]:.1f}"


def collect(folder: Path) -> None:
    """Time ``pytest --co`` of 200 tests in fresh interpreters with warm bytecode."""
    (folder / "test_collected.py").write_text(COLLECTED)
    (folder / "conftest.py").write_text(COUNTS_MODULES)
    (folder / "empty_plugin.py").write_text("")
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def timed_ms(*arguments: str) -> tuple[float, float]:
        command = [sys.executable, "-m", "pytest", "--co", "-q", *arguments]
        start_ns, start_cpu_ms = time.perf_counter_ns(), children_cpu_ms()
        run(command, cwd=folder, env=environment, stdout=DEVNULL, check=True)
        wall_ms = (time.perf_counter_ns() - start_ns) / 1e6
        return wall_ms, children_cpu_ms() - start_cpu_ms

    def modules() -> set[str]:
        return set(json.loads((folder / "modules.json").read_text()))

    walls, cpus, without = [], [], []
    for pair in range(-UNMEASURED_PAIRS, PAIRS):
        bare_wall_ms, bare_cpu_ms = timed_ms("-p", "empty_plugin")
        bare_modules = modules()
        wall_ms, cpu_ms = timed_ms("-p", "pytest_gpuperf.plugin")
        if pair >= 0:
            without.append(bare_wall_ms)
            walls.append(wall_ms - bare_wall_ms)
            cpus.append(cpu_ms - bare_cpu_ms)
    added = modules() - bare_modules
    ours = [name for name in added if name.startswith("pytest_gpuperf")]
    line("pytest --co without the plugin", f"{median(without):.1f} ms", "")
    line("the plugin adds, wall time", f"{median(walls):.1f} ms", "bar 10 ms")
    line(f"  the inner 80 % of {PAIRS} pairs", spread(walls), "")
    line("the plugin adds, CPU time", f"{median(cpus):.1f} ms", "bar 10 ms")
    line(f"  the inner 80 % of {PAIRS} pairs", spread(cpus), "")
    line("  modules, of them this package's", f"{len(added)}, {len(ours)}", "")


def children_cpu_ms() -> float:
    """CPU time of all child processes so far: what waits for a core does not count."""
    used = getrusage(RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def empty() -> None:
    pass


def loop(_: Path) -> None:
    """Time blocks of an empty step: the loop that measures, a bare one, and again."""
    device = CpuDevice()
    subjects = {
        "timed loop": Subject(step=empty),
        "timed loop with setup": Subject(step=lambda *_: None, setup=lambda: (1, 2)),
    }
    for name, subject in subjects.items():
        steps = subject.most_steps(STEPS)
        times = [
            (
                bare_ms(subject, steps),
                time_round(device, subject, steps).step_ms,
            )
            for _ in range(BLOCKS)
        ]
        bare_ns = median(bare for bare, _ in times) * 1e6
        over_ns = median(timed - bare for bare, timed in times) * 1e6
        line(f"bare loop of {steps} steps, a step", f"{bare_ns:.1f} ns", "")
        line(f"{name} over it, a step", f"{over_ns:+.1f} ns", "bar 1000 ns")


def bare_ms(subject: Subject, steps: int) -> float:
    step: Callable[..., object] = subject.step
    batch = list(subject.batch(steps)) if subject.setup else None
    start_ns = time.perf_counter_ns()
    if batch is None:
        for _ in range(steps):
            step()
    else:
        for arguments in batch:
            step(*arguments)
    return (time.perf_counter_ns() - start_ns) / steps / 1e6


def start(folder: Path) -> None:
    """Ask the warm server for runs of a test whose step is empty, one after another."""
    test = folder / "test_started.py"
    test.write_text(STARTED)
    request = RunRequest(
        tests=(f"{test}::test_step",),
        device=DeviceKind.CPU,
        project=Project(
            directory=str(folder),
            search_path=tuple(sys.path),
            arguments=(f"--rootdir={folder}",),
        ),
    )
    job = Job(entry="pytest_gpuperf.worker.child:measure", request=encode(request))
    asked_ns = time.monotonic_ns()
    server = ForkServer(HEAVY_MODULES, warm="pytest_gpuperf.worker.child:warm_pytest")
    with closing(server):
        server.wait_until_ready()
        ready_ms = (time.monotonic_ns() - asked_ns) / 1e6
        started, ended, empty_jobs = [], [], []
        for _ in range(RUNS):
            asked_ns = time.monotonic_ns()
            (result,) = server.run(job, seconds=60)
            ended.append((time.monotonic_ns() - asked_ns) / 1e6)
            assert result["ending"] == "passed", result["text"]
            first_line_ns = int((folder / "started.txt").read_text())
            started.append((first_line_ns - asked_ns) / 1e6)
            asked_ns = time.monotonic_ns()
            server.run(Job(entry="builtins:len", request={}), seconds=60)
            empty_jobs.append((time.monotonic_ns() - asked_ns) / 1e6)
    line("fork server ready, once a session", f"{ready_ms:.0f} ms", "")
    line("a process that does nothing, to its end", f"{median(empty_jobs):.1f} ms", "")
    line(
        "a run: asked to first line of the test",
        f"{median(started):.1f} ms",
        "bar 100 ms",
    )
    line(f"  the inner 80 % of {RUNS} runs", spread(started), "")
    line("a run: asked to result (20 rounds of 10 ms)", f"{median(ended):.1f} ms", "")


PARTS: Final = {"collect": collect, "loop": loop, "start": start}


def main() -> int:
    asked = sys.argv[1:] or list(PARTS)
    if unknown := set(asked) - set(PARTS):
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
        return 4
    for name in asked:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
