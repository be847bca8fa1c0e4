"""Does a gate decide on a shared runner, and does it blame nobody wrongly there?

    python benchmarks/noisy_runner.py run [--tests 40] [--burners 0 1 2 4] [--out FILE]
    python benchmarks/noisy_runner.py simulate [--tests 40] [--burners 0 1 2 4] [--out FILE]
    python benchmarks/noisy_runner.py show [FILE]

Records the baselines of a suite of CPU steps in a git repository, beside as many
processes that compute as the gate will have. Commits a change that slows nothing, then
ones that slow each step by 10, 25 and 50 %, and gates each commit as CI does, with the
defaults. ``simulate`` takes as many tests a cell, ten times as many unchanged ones,
through the same phases, gate, judge and A/B on a virtual clock, whose machine is that of
``silent_green.py``. Both continue a file that is there. Exits with 1 unless 50, 90 and
99 % of the slower steps are blamed, no unchanged one is, and at most 5 % stay undecided.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Final

from burners import burning
from continued import load
from silent_green import CORES
from silent_green import JITTER
from silent_green import BusyMachine
from silent_green import result

from pytest_gpuperf.compare_commits.one_process_child import VERSION_BLOCK_MS
from pytest_gpuperf.compare_steps.interleave import compare_steps
from pytest_gpuperf.devices.base import ThreadWork
from pytest_gpuperf.judge.ab import SETTLED_AS
from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.judge.verdict import DETECT_ABOVE_TOLERANCE
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model import metrics
from pytest_gpuperf.model.baseline import FULL_RUNS
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.run import TestResult
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.runner.screening import Group
from pytest_gpuperf.runner.screening import confirm
from pytest_gpuperf.runner.screening import screen
from pytest_gpuperf.runner.screening import settled


RESULTS: Final = Path(__file__).parent / "results" / "noisy_runner.jsonl"

FACTORS: Final = (1.0, 1.1, 1.25, 1.5)
LEAST_BLAMED: Final = {1.1: 0.5, 1.25: 0.9, 1.5: 0.99}
MOST_UNDECIDED: Final = 0.05

SUITE: Final = """
import json
from pathlib import Path
import pytest
import torch

TURNS = json.loads(Path(__file__).with_name("turns.json").read_text())

@pytest.mark.parametrize("number", range({tests}))
def test_step(gpuperf, number):
    torch.manual_seed(number)
    left = torch.rand(48, 48)
    def step():
        for _ in range(TURNS):
            left @ left
    gpuperf(step)
"""
TURNS: Final = 200
"""Products per step: about a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one test of a gate ended, and what the whole gate took per test."""

    burners: int
    factor: float
    test: str
    ending: str
    outcome: str
    seconds_per_test: float


# The same on a virtual clock.

STEP_MS: Final = 1.0
CPU_TOLERANCE: Final = metrics.STEP_MS.tolerance
SECONDS: Final = 60
"""Time cap of a test, as the defaults have it."""

UNCHANGED_TESTS: Final = 10
"""Unchanged tests a cell, over the slower ones."""

JOSTLE: Final = 0.04
"""Spread of log CPU time from block to block beside others, as it was measured here."""


class SharedMachine(BusyMachine):
    """Both versions of a step in turns, beside burners that take its core."""

    def __init__(self, burners: int, noise: random.Random) -> None:
        super().__init__(STEP_MS, burners, noise)
        self._luck, self._crowd = noise, burners
        self._worked_ns = 0

    def step_of(self, work_ms: float) -> Subject:
        """Return a step that works so long, and waits for its core as it comes."""

        def step() -> None:
            jostle = JOSTLE if self._crowd else JITTER
            worked_ns = work_ms * self._luck.lognormvariate(0, jostle) * 1e6
            crowd = max(0.0, 1 - CORES / (self._crowd + 1)) if self._crowd else 0.0
            share = self._luck.uniform(0, crowd + 0.1)
            waited_ns = worked_ns * share / (1 - share)
            self._clock_ns += round(worked_ns + waited_ns)
            self._worked_ns += round(worked_ns)

        return Subject(step=step)

    def work(self) -> ThreadWork:
        """The thread does nothing but work, and is alone in its process."""
        own_ns = self._worked_ns
        return ThreadWork(thread_ns=own_ns, process_ns=own_ns, waits=0)


def simulate(tests: int, burners: Sequence[int], path: Path) -> None:
    """Add the tests that *path* lacks: each has a seed of its own, so none depends on others."""
    path.parent.mkdir(exist_ok=True)
    rows = load(path, Row)
    importlib.import_module("torch")  # the A/B compiles no step, but looks for one
    gc.freeze()  # or each measurement would walk all of torch's objects
    done = {(row.burners, row.factor, row.test) for row in rows}
    with path.open("a", encoding="utf-8", buffering=1) as file:
        for count, factor in product(burners, FACTORS):
            for number in range(tests * (UNCHANGED_TESTS if factor == 1 else 1)):
                test = f"simulated {number}"
                if (count, factor, test) not in done:
                    row = _simulated(count, factor, test)
                    file.write(json.dumps(asdict(row)) + "\n")


def _simulated(burners: int, factor: float, test: str) -> Row:
    noise = random.Random(f"{burners} {factor} {test}")  # noqa: S311  noise, no secret
    outcome, device_ns = _gated(burners, factor, noise), 0
    if outcome is Outcome.INCONCLUSIVE:
        device = SharedMachine(burners, noise)
        found = compare_steps(
            device,
            device.step_of(STEP_MS),
            device.step_of(STEP_MS * factor),
            seconds=SECONDS,
            tolerance=CPU_TOLERANCE,
            detect=CPU_TOLERANCE + DETECT_ABOVE_TOLERANCE,
            seed=noise.randrange(1 << 30),
            block_ms=VERSION_BLOCK_MS,
        )
        outcome = SETTLED_AS.get(found.answer, Outcome.INCONCLUSIVE)
        device_ns = device.now_ns()
    return Row(
        burners=burners,
        factor=factor,
        test=test,
        ending="failed" if outcome.fails else "passed",
        outcome=outcome.value,
        seconds_per_test=device_ns / 1e9,
    )


def _gated(burners: int, factor: float, noise: random.Random) -> Outcome:
    stored = [result(STEP_MS, burners, SECONDS, noise) for _ in range(FULL_RUNS)]
    entry = Entry(runs=tuple(RunSummary.of(r.calls[0].measurement) for r in stored))

    def measured(groups: Sequence[Group], number: int) -> list[TestResult]:  # noqa: ARG001
        return [result(STEP_MS * factor, burners, SECONDS, noise) for _ in groups]

    judge = partial(judge_calls, entry=entry)
    cases = screen([("t",)], measured)
    confirm([("t",)], measured, cases, judge, seconds=SECONDS)
    verdict = settled(judge(cases["t"].calls["t"]))
    (outcome,) = [
        v.outcome for v in verdict.verdicts if v.metric == metrics.STEP_MS.name
    ]
    return outcome


# Real steps.


class Project:
    """A suite under git in *folder*."""

    def __init__(self, folder: Path, tests: int) -> None:
        self._folder = folder
        self._tests = tests
        (folder / "test_suite.py").write_text(SUITE.format(tests=tests), "utf-8")
        (folder / ".gitignore").write_text("__pycache__\n.gpuperf\n.pytest_cache\n")
        self._git("init", "--quiet", "--initial-branch=main")

    def commit(self, turns: int) -> None:
        """Let a step take so many *turns* from here on."""
        (self._folder / "turns.json").write_text(str(turns))
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message=a change")

    def pytest(self, *options: str, ci: str = "") -> float:
        """Return the seconds that a run took."""
        start_s = time.perf_counter()
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--gpuperf",
                "--gpuperf-device=cpu",
                *options,
            ],
            cwd=self._folder,
            env={**os.environ, "CI": ci},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return time.perf_counter() - start_s

    def gated(self, burners: int, factor: float) -> list[Row]:
        """Gate the present commit as CI does."""
        seconds = self.pytest(ci="1")
        text = (self._folder / ".gpuperf/results.json").read_text(encoding="utf-8")
        return [
            Row(
                burners=burners,
                factor=factor,
                test=test,
                ending=found["ending"],
                outcome=str(found["outcome"]),
                seconds_per_test=seconds / self._tests,
            )
            for test, found in json.loads(text)["tests"].items()
        ]

    def _git(self, *arguments: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        command = ["git", *author, *arguments]
        subprocess.run(command, cwd=self._folder, check=True)


def run(tests: int, burners: Sequence[int], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = load(path, Row) if path.exists() else []
    done = {(row.burners, row.factor) for row in rows}
    for count in burners:
        wanted = [factor for factor in FACTORS if (count, factor) not in done]
        if wanted:
            _run_beside(count, wanted, tests, path)


def _run_beside(burners: int, factors: Sequence[float], tests: int, path: Path) -> None:
    with tempfile.TemporaryDirectory() as name, burning(burners):
        project = Project(Path(name), tests)
        project.commit(TURNS)
        project.pytest("--gpuperf-update=all")
        project.commit(TURNS)  # the baselines
        for factor in factors:
            project.commit(round(TURNS * factor))
            rows = project.gated(burners, factor)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
            show(rows)


def show(rows: Sequence[Row]) -> bool:
    """Print how tests ended by burners and factor; say whether all bars are met."""
    groups: dict[tuple[int, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.burners, row.factor), []).append(row)
    for (burners, factor), group in sorted(groups.items()):
        blamed = sum(row.ending == "failed" for row in group)
        undecided = sum(row.outcome == "inconclusive" for row in group)
        seconds = fmean(row.seconds_per_test for row in group)
        print(
            f"{burners} burners, {factor:g}x: {len(group)} tests, {blamed} blamed, "
            f"{undecided} undecided, {seconds:.1f} s per test",
            flush=True,
        )
    return all(_meets(factor, group) for (_, factor), group in groups.items())


def _meets(factor: float, group: Sequence[Row]) -> bool:
    blamed = sum(row.ending == "failed" for row in group)
    undecided = sum(row.outcome == "inconclusive" for row in group)
    if factor == 1:
        return not blamed and undecided <= MOST_UNDECIDED * len(group)
    return blamed >= LEAST_BLAMED[factor] * len(group)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("run", "simulate", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--tests", type=int, default=40)
    parser.add_argument("--burners", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.command == "run":
        run(asked.tests, asked.burners, asked.out)
    if asked.command == "simulate":
        simulate(asked.tests, asked.burners, asked.out)
    path = asked.file if asked.command == "show" else asked.out
    return 0 if show(load(path, Row)) else 1


if __name__ == "__main__":
    sys.exit(main())
