"""Does a slowdown ever end green, and does unchanged code ever fail?

    python benchmarks/silent_green.py [--draws 500]

Steps of 0.1 to 2 ms are drawn that became 1.5 to 1000 times slower, beside 0, 1, 2 and 4
processes that compute, under time caps of 1 to 60 s, and twice as many that did not
change. Phases, gate and judge are the product's, on a virtual clock. Exits with 1 where a
step more than 5 times slower ends green, or an unchanged one fails.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from pytest_gpuperf.devices.base import Kernel, Step
from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.baseline import FULL_RUNS, Entry, RunSummary
from pytest_gpuperf.model.environment import DeviceKind, Environment, Hardware
from pytest_gpuperf.model.metrics import SENTINELS, STEP_MS
from pytest_gpuperf.model.run import Ending, StepCall, TestResult
from pytest_gpuperf.runner.screening import Case, Group, confirm, screen, settled


sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from scripted_device import ScriptedDevice


BURNERS: Final = (0, 1, 2, 4)
CAPS_SECONDS: Final = (1, 3, 10, 30, 60)
FASTEST_MS, SLOWEST_MS = 0.1, 2.0
LEAST_FACTOR, MOST_FACTOR = 1.5, 1000.0

LARGE: Final = 5.0
"""Times slower beyond which no run may end green."""

UNCHANGED: Final = 2
"""Unchanged steps beside each that became slower."""

CORES: Final = 2
SHARING: Final = 2.6
"""Largest factor that neighbours add beside waiting."""

NOISE, JITTER = 0.02, 0.01
"""Spread of log time from run to run and from step to step."""

SENTINEL_MS: Final = 0.2


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
    parser.add_argument("--draws", type=int, default=500)
    return 0 if show(simulate(parser.parse_args().draws)) else 1


if __name__ == "__main__":
    sys.exit(main())
