"""Does a slowdown ever end green, and does unchanged code ever fail?

    python benchmarks/silent_green.py simulate [--draws 500]
    python benchmarks/silent_green.py run [--draws 500] [--minutes 60] [--out FILE]
    python benchmarks/silent_green.py show [FILE]

Steps of 0.1 to 2 ms (real ones: 0.3 ms) are drawn that became 1.5 to 1000 times slower, beside 0, 1, 2 and 4
processes that compute, under time caps of 1 to 60 s, and twice as many that did not
change. ``run`` gates real steps on the CPU of this machine, as a user types it; a file
that is there is continued. ``simulate`` runs the same phases, gate and judge on a virtual
clock. Exits with 1 where a step more than 5 times slower ends green, or an unchanged one
fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from burners import burning
from continued import load
from scripted import ScriptedDevice

from pytest_gpuperf.devices.base import Kernel
from pytest_gpuperf.devices.base import Step
from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.baseline import FULL_RUNS
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.metrics import SENTINELS
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.run import StepCall
from pytest_gpuperf.model.run import TestResult
from pytest_gpuperf.runner.screening import Case
from pytest_gpuperf.runner.screening import Group
from pytest_gpuperf.runner.screening import confirm
from pytest_gpuperf.runner.screening import screen
from pytest_gpuperf.runner.screening import settled


RESULTS: Final = Path(__file__).parent / "results" / "silent_green.jsonl"

BURNERS: Final = (0, 1, 2, 4)
CAPS_SECONDS: Final = (1, 3, 10, 30, 60)
FASTEST_MS, SLOWEST_MS = 0.1, 2.0
SLOWEST_REAL_MS: Final = 0.3  # or a batch under a long cap takes a quarter of an hour
LEAST_FACTOR, MOST_FACTOR = 1.5, 1000.0

LARGE: Final = 5.0
"""Times slower beyond which no run may end green."""

UNCHANGED: Final = 2
"""Unchanged steps beside each that became slower."""

CORES: Final = 2
SHARING: Final = 2.6
"""Largest factor that neighbours add beside waiting (``sharing.py``)."""

NOISE, JITTER = 0.02, 0.01
"""Spread of log time from run to run and from step to step."""

SENTINEL_MS: Final = 0.2

A_BATCH: Final = 18
"""Steps that are gated by one command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step and how its test ended: ``failed``, ``passed`` or something else."""

    step_ms: float
    factor: float
    burners: int
    seconds: float
    ending: str
    outcome: str


class BusyMachine(ScriptedDevice):
    """A step of *work_ms* of CPU time beside *burners*, on a clock that is not real."""

    def __init__(self, work_ms: float, burners: int, noise: random.Random) -> None:
        super().__init__({}, run=0)
        luck = noise.lognormvariate(0, NOISE)
        sharing = noise.uniform(1, SHARING) if burners else 1.0
        self._work_ms, self._noise = work_ms * luck * sharing, noise
        self._slowed = sharing * noise.lognormvariate(0, NOISE)
        crowd = max(0.0, 1 - CORES / (burners + 1)) if burners else 0.0
        self._waiting = noise.uniform(0, crowd + 0.1) if burners else 0.0
        self._waited_ns = 0

    def environment(self) -> Environment:
        """Call it a CPU: the judge takes neighbours of a GPU from its driver."""
        return Environment(hardware=Hardware(kind=DeviceKind.CPU, name="busy"))

    def prepare(self, step: Step, test: str) -> Step:  # noqa: ARG002
        def taking_time(*arguments: object) -> object:
            took_ns = self._work_ms * self._noise.lognormvariate(0, JITTER) * 1e6
            waited_ns = took_ns * self._waiting / (1 - self._waiting)
            self._clock_ns += round(took_ns + waited_ns)
            self._waited_ns += round(waited_ns)
            return step(*arguments)

        return taking_time

    def waiting_ns(self) -> int:
        return self._waited_ns

    @contextmanager
    def sentinels(self) -> Iterator[Mapping[str, Kernel]]:
        """Neighbours slow a sentinel as well, but it is too short to wait for a core."""

        def play() -> None:
            self._clock_ns += round(SENTINEL_MS * self._slowed * 1e6)

        yield dict.fromkeys((metric.name for metric in SENTINELS), play)


def drawn(draws: int, seed: int) -> Iterator[tuple[float, float, int, int]]:
    """Draw step_ms, factor, burners and seconds: each slower step, then unchanged ones."""
    noise = random.Random(seed)  # noqa: S311  noise, no secret
    for _ in range(draws):
        factor = LEAST_FACTOR * (MOST_FACTOR / LEAST_FACTOR) ** noise.random()
        for one in (factor, *[1.0] * UNCHANGED):
            step_ms = FASTEST_MS * (SLOWEST_MS / FASTEST_MS) ** noise.random()
            yield step_ms, one, noise.choice(BURNERS), noise.choice(CAPS_SECONDS)


def simulate(draws: int) -> list[Row]:
    noise = random.Random(1)  # noqa: S311
    return [_simulated(noise, *one) for one in drawn(draws, seed=2)]


def _simulated(
    noise: random.Random, step_ms: float, factor: float, burners: int, seconds: int
) -> Row:
    calm = [result(step_ms, 0, 60, noise) for _ in range(FULL_RUNS)]
    entry = Entry(runs=tuple(RunSummary.of(r.calls[0].measurement) for r in calm))

    def run(groups: Sequence[Group], number: int) -> list[TestResult]:  # noqa: ARG001
        return [result(step_ms * factor, burners, seconds, noise) for _ in groups]

    judge = partial(judge_calls, entry=entry)
    groups = [("t",)]
    cases: dict[str, Case] = screen(groups, run)
    confirm(groups, run, cases, judge, seconds=seconds)
    verdict = settled(judge(cases["t"].calls["t"]))
    (outcome,) = [v.outcome for v in verdict.verdicts if v.metric == STEP_MS.name]
    return Row(
        step_ms=step_ms,
        factor=factor,
        burners=burners,
        seconds=seconds,
        ending="failed" if outcome.fails else "passed",
        outcome=outcome.value,
    )


def result(
    work_ms: float, burners: int, seconds: int, noise: random.Random
) -> TestResult:
    device = BusyMachine(work_ms, burners, noise)
    subject = Subject(step=int)
    found = measure(device, subject, MeasurePlan(test="t", seconds=seconds)).measurement
    return TestResult(
        test="t",
        ending=Ending.PASSED,
        calls=(StepCall(measurement=found),),
        seconds=device.now_ns() / 1e9,
    )


SUITE: Final = """
import json, time
from pathlib import Path
import pytest
import torch

STEPS = json.loads(Path("steps.json").read_text())

@pytest.mark.parametrize("name", STEPS)
def test_step(gpuperf, name):
    kind, count = STEPS[name]
    small = torch.rand(16, 16)
    def step():
        if kind == "sleep":
            time.sleep(count / 1e6)
        elif kind == "python":
            for _ in range(count):
                pass
        else:
            for _ in range(count):
                small @ small
    gpuperf(step)
"""

COUNT: Final = """
import time
import torch
torch.set_num_threads(1)
small = torch.rand(16, 16)
def python():
    for _ in range(100_000):
        pass
def products():
    for _ in range(1000):
        small @ small
def least(call, count):
    times = []
    for _ in range(9):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return count / min(times) / 1e3
print(least(python, 100_000), least(products, 1000))
"""
"""Prints how many turns and products take a millisecond of CPU time."""


def run(draws: int, minutes: float, path: Path) -> None:
    """Gate real steps batch by batch until there are enough, or time is up."""
    until = time.monotonic() + 60 * minutes
    done = len(load(path, Row)) if path.exists() else 0
    path.parent.mkdir(exist_ok=True)
    wanted = list(drawn(draws, seed=3))
    with tempfile.TemporaryDirectory() as folder:
        project = _project(Path(folder), seed=done)
        while done < len(wanted) and time.monotonic() < until:
            rows = _batch(project, wanted[done : done + A_BATCH], number=done)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
            done += A_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class _Project:
    folder: Path
    steps: dict[str, tuple[str, float, float]]
    """Kind, turns and ms of each step."""


def _project(folder: Path, seed: int) -> _Project:
    """Write a suite of unchanged steps and record its baseline."""
    noise = random.Random(seed)  # noqa: S311
    counted = subprocess.check_output([sys.executable, "-c", COUNT], text=True)
    per_ms = dict(zip(("python", "products"), map(float, counted.split()), strict=True))
    per_ms["sleep"] = 1e3
    steps = {}
    for number in range(A_BATCH):
        kind = noise.choice(list(per_ms))
        step_ms = FASTEST_MS * (SLOWEST_REAL_MS / FASTEST_MS) ** noise.random()
        steps[f"{kind}{number}"] = (kind, step_ms * per_ms[kind], step_ms)
    (folder / "test_steps.py").write_text(SUITE, encoding="utf-8")
    project = _Project(folder=folder, steps=steps)
    _write(project, dict.fromkeys(steps, 1.0))
    _gate(project, "--gpuperf-update=all")
    return project


def _write(project: _Project, factors: dict[str, float]) -> None:
    steps = {
        name: (kind, max(1, round(turns * factors[name])))
        for name, (kind, turns, _) in project.steps.items()
    }
    (project.folder / "steps.json").write_text(json.dumps(steps), encoding="utf-8")


def _gate(project: _Project, *options: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--gpuperf", *options]
    subprocess.run(
        [*command, "--gpuperf-device=cpu"],
        cwd=project.folder,
        env={**os.environ, "CI": ""},
        stdout=subprocess.DEVNULL,
        check=False,
    )


def _batch(
    project: _Project, wanted: Sequence[tuple[float, float, int, int]], number: int
) -> list[Row]:
    """Gate steps of these factors beside the burners and under the cap of the first."""
    _, _, burners, seconds = wanted[0]
    factors = [factor for _, factor, _, _ in wanted]
    named = dict(zip(project.steps, [*factors, *[1.0] * A_BATCH], strict=False))
    _write(project, named)
    with burning(burners):
        _gate(project, f"--gpuperf-seconds={seconds}")
    found = json.loads((project.folder / ".gpuperf/results.json").read_text())["tests"]
    print(number, burners, seconds, Counter(t["ending"] for t in found.values()))
    return [
        Row(
            step_ms=project.steps[name][2],
            factor=factor,
            burners=burners,
            seconds=seconds,
            ending=found[f"test_steps.py::test_step[{name}]"]["ending"],
            outcome=str(found[f"test_steps.py::test_step[{name}]"]["outcome"]),
        )
        for name, factor in list(named.items())[: len(wanted)]
    ]


def show(rows: Sequence[Row]) -> bool:
    """Print how steps ended by how much slower they were; say whether both bars are met."""
    bands = (1.0, 2.0, LARGE, 20.0, 100.0, MOST_FACTOR)
    print(
        f"{'times slower':>14} {'burners':>7} {'steps':>6} {'failed':>7} {'green':>6}"
    )
    for low, high in ((1.0, 1.0), *pairwise(bands)):
        for burners in BURNERS:
            band = [
                r
                for r in rows
                if r.burners == burners
                and (r.factor == 1 if high == 1 else low < r.factor <= high)
            ]
            green = [row for row in band if row.ending != "failed"]
            name = "unchanged" if high == 1 else f"{low:g} to {high:g}"
            print(
                f"{name:>14} {burners:7} {len(band):6} {len(band) - len(green):7} "
                f"{len(green):6}"
            )
    silent = [r for r in rows if r.factor > LARGE and r.ending != "failed"]
    blamed = [r for r in rows if r.factor == 1 and r.ending == "failed"]
    for row in (*silent, *blamed):
        print(row)
    print(
        f"beyond {LARGE:g}x and green: {len(silent)}; unchanged and failed: {len(blamed)}"
    )
    return not (silent or blamed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("simulate", "run", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.command == "simulate":
        return 0 if show(simulate(asked.draws)) else 1
    if asked.command == "run":
        run(asked.draws, asked.minutes, asked.out)
        return 0 if show(load(asked.out, Row)) else 1
    return 0 if show(load(asked.file, Row)) else 1


if __name__ == "__main__":
    sys.exit(main())
