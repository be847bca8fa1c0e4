"""What does it cost to let two steps take turns, apart from the steps themselves?

    python benchmarks/ab_switch.py [--comparisons 5] [--modules 50]

Small training steps are compared with fresh copies of themselves, and every call of a
step is timed from inside, in CPU time of the thread: other processes are not its fault.
What is left of a comparison without its steps and without its judge is the price of the
turns: three switches a quad, the clock around each block,
the collection of garbage between two quads. It is put beside the bars: less than 1 ms a
switch, and less than 1 % of the time that the measured blocks took. The unmeasured step
after each switch is a part of the design, and its share stands beside them. Each step
is compared as in one test, and as two versions of a project are that have ``--modules``
modules each, of which code sees one version's at a time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any
from typing import Final

from ab_real import DETECT
from ab_real import SECONDS
from ab_real import TOLERANCE
from ab_real import WORKLOADS
from ab_real import Step

from pytest_gpuperf.compare_commits.module_view import Guest
from pytest_gpuperf.compare_commits.module_view import Views
from pytest_gpuperf.compare_commits.one_process_child import VERSION_BLOCK_MS
from pytest_gpuperf.compare_steps import interleave as quads
from pytest_gpuperf.devices import preflight as garbage
from pytest_gpuperf.devices.cpu.device import CpuDevice
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner.relocation import Relocation
from pytest_gpuperf.runner.request import Project
from pytest_gpuperf.runner.request import RunRequest


SWITCHES: Final = 3
"""Of one quad: before its first block, to the other side, and back."""

MOST_SWITCH_MS: Final = 1.0

MOST_SHARE: Final = 0.01


@dataclass(slots=True)
class Ledger:
    """Where the seconds of one comparison go, from its first turn on."""

    all: float = 0.0
    steps: float = 0.0
    blocks: float = 0.0
    judge: float = 0.0

    def noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add what *function* takes to *name*."""

        def noted(*arguments: Any, **keywords: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*arguments, **keywords)
            finally:
                took = time.thread_time() - start
                setattr(self, name, getattr(self, name) + took)

        return noted


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of the turns of one comparison."""

    switch_ms: float
    share: float
    unmeasured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How sides change: in blocks of ``block_ms``, and what is done at each turn."""

    block_ms: float = quads.STEP_BLOCK_MS
    enter: tuple[Callable[[], None], Callable[[], None]] = (
        quads.nothing,
        quads.nothing,
    )


@contextmanager
def versions(modules: int) -> Iterator[Turns]:
    """Have two versions of a project of so many modules in this process."""
    with tempfile.TemporaryDirectory() as folder:
        views = Views(guest(folder, "before"), guest(folder, "after"))
        for view in views.both:
            for number in range(modules):
                module = ModuleType(f"project.m{number}")
                module.__file__ = f"{view.directory}/m{number}.py"
                view.modules[module.__name__] = module
        first, second = (partial(views.turn, view) for view in views.both)
        home = Path.cwd()
        yield Turns(block_ms=VERSION_BLOCK_MS, enter=(first, second))
        views.hide()
        os.chdir(home)


def guest(folder: str, name: str) -> Guest:
    root = Path(folder, name)
    root.mkdir()
    project = Project(directory=str(root), search_path=tuple(sys.path))
    return Guest(
        run=RunRequest(tests=(), device=DeviceKind.CPU, project=project),
        relocation=Relocation(origin=folder, root=str(root)),
        environment={},
    )


def price_of(workload: Callable[[], Step], turns: Turns) -> Price:
    """Compare a step with its like and return what the turns cost."""
    ledger = Ledger()

    @contextmanager
    def no_garbage_collection() -> Iterator[None]:
        with garbage.no_garbage_collection():  # collects everything, once
            ledger.steps = ledger.judge = 0.0
            start = time.thread_time()
            yield
            ledger.all = time.thread_time() - start

    before, after = (Subject(step=ledger.noting("steps", workload())) for _ in range(2))
    watched = {
        "no_garbage_collection": no_garbage_collection,
        "decide_quads": ledger.noting("judge", quads.decide_quads),
        "time_block": ledger.noting("blocks", quads.time_block),
    }
    with replaced(watched):
        compared = quads.compare_steps(
            CpuDevice(),
            before,
            after,
            seconds=SECONDS,
            tolerance=TOLERANCE,
            detect=DETECT,
            enter=turns.enter,
            block_ms=turns.block_ms,
        )
    cost = ledger.all - ledger.judge - ledger.steps
    return Price(
        switch_ms=1e3 * cost / (SWITCHES * compared.quads),
        share=cost / ledger.blocks,
        unmeasured=SWITCHES * compared.quads / compared.steps,
    )


@contextmanager
def replaced(functions: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Let the comparison call *functions* in place of its own of that name."""
    originals = {name: getattr(quads, name) for name in functions}
    vars(quads).update(functions)
    try:
        yield
    finally:
        vars(quads).update(originals)


def line(name: str, prices: Sequence[Price]) -> str:
    switch_ms = median(price.switch_ms for price in prices)
    share = median(price.share for price in prices)
    unmeasured = median(price.unmeasured for price in prices)
    kept = switch_ms < MOST_SWITCH_MS and share < MOST_SHARE
    return (
        f"{name:23}  {switch_ms:5.3f} ms  {share:20.2%}  {unmeasured:16.0%}  "
        f"{'met' if kept else 'MISSED'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=5)
    parser.add_argument("--modules", type=int, default=50)
    arguments = parser.parse_args()
    numbers = range(arguments.comparisons)
    print(f"{'step':23}  a switch  of the measured time  unmeasured steps  verdict")
    for name, workload in WORKLOADS.items():
        print(line(name, [price_of(workload, Turns()) for _ in numbers]))
    with versions(arguments.modules) as turns:
        for name, workload in WORKLOADS.items():
            prices = [price_of(workload, turns) for _ in numbers]
            print(line(f"{name}, two versions", prices))


if __name__ == "__main__":
    main()
