"""Measuring processes that are played: a run of the evaluator takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.baselines.refresh import Seen
from pytest_gpuperf.baselines.store import path_of, read
from pytest_gpuperf.model.baseline import Entry, Refresh
from pytest_gpuperf.model.budget import Budget
from pytest_gpuperf.model.environment import DeviceKind, Environment, Hardware
from pytest_gpuperf.model.measurement import Distribution, Measurement
from pytest_gpuperf.model.run import Ending, RunMode, StepCall, TestResult
from pytest_gpuperf.runner import rounds
from pytest_gpuperf.runner.evaluation import RunEvaluator, RunResult
from pytest_gpuperf.runner.request import Planned, Project
from pytest_gpuperf.settings import Isolation, MissingBaseline, Settings


HARDWARE = Hardware(kind=DeviceKind.SCRIPTED, name="")
ENVIRONMENT = Environment(hardware=HARDWARE)
At = tuple[str, int]
"""A test, and the number of its run from 0."""


@dataclass
class Play:
    """What happens: times by test, and what befalls some runs."""

    tests: Sequence[str] = ("t.py::a", "t.py::b", "t.py::c")
    ms: dict[str, float] = field(default_factory=dict)
    disturbed: set[At] = field(default_factory=set)
    failing: dict[str, Ending] = field(default_factory=dict)
    budget_ms: dict[str, float] = field(default_factory=dict)
    may_fail: set[str] = field(default_factory=set)
    interrupted_at: At | None = None
    interrupt: Callable[[], None] | None = None
    done: list[At] = field(default_factory=list)

    def result(self, test: str, number: int) -> TestResult:
        ms = self.ms.get(test, 10.0)
        call = StepCall(
            measurement=Measurement(
                test=test,
                environment=ENVIRONMENT,
                times={"step_ms": Distribution.of([ms])},
                exact={"syncs": 0},
                dirty=("hot",) if (test, number) in self.disturbed else (),
            ),
            budgets=(
                (Budget(limits={"ms": self.budget_ms[test]}, on=("scripted",)),)
                if test in self.budget_ms
                else ()
            ),
        )
        ending = self.failing.get(test, Ending.PASSED)
        return TestResult(test=test, ending=ending, calls=(call,), seconds=1.0)


class PlayedChildren:
    """Stands for the measuring processes of one run, and plays one after the other."""

    def __init__(self, play: Play, progress: Any) -> None:
        self._play = play
        self._progress = progress

    def environment(self) -> Environment:
        return ENVIRONMENT

    def renew(self, number: int) -> None:
        """Have nothing that runs could have in common."""

    def learn(self, *_: object) -> None:
        """Need to know nothing."""

    def close(self) -> None:
        """Have no processes."""

    def run(
        self,
        kind: DeviceKind,
        plan: Mapping[str, Planned],
        groups: Sequence[tuple[str, ...]],
        number: int,
        *,
        mode: RunMode = RunMode.MEASURE,
        timed: Collection[str] = (),
        arrived: Callable[[Sequence[TestResult]], None],
    ) -> Sequence[TestResult]:
        self._progress.begin(groups, number)
        found: list[TestResult] = []
        for index, group in enumerate(groups):
            self._progress.started(index)
            if self._play.interrupted_at in [(test, number) for test in group]:
                raise KeyboardInterrupt
            results = [self._play.result(test, number) for test in group]
            self._play.done += [(test, number) for test in group]
            found += results
            self._progress.ended(index)
            arrived(results)
        return found


class Played:
    """Runs of one project in a folder, whose measuring processes are played."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.said: list[str] = []
        self._monkeypatch = monkeypatch

    @property
    def file(self) -> Path:
        return path_of(self.folder / "baselines", HARDWARE)

    @property
    def entries(self) -> Mapping[str, Entry]:
        """What is stored; it must be a whole file or none."""
        return read(self.folder / "baselines", HARDWARE).entries

    @property
    def runs(self) -> dict[str, int]:
        """How many runs are stored of each test."""
        return {test: len(entry.runs) for test, entry in self.entries.items()}

    def settings(self, update: Refresh | None, **changed: Any) -> Settings:
        found: dict[str, Any] = {
            "device": DeviceKind.SCRIPTED,
            "update": update,
            "seconds": 60.0,
            "strict": False,
            "missing_baseline": MissingBaseline.WARN,
            "isolation": Isolation.TEST,
            "baselines": self.folder / "baselines",
            "artefacts": self.folder / ".gpuperf",
        }
        return Settings(**{**found, **changed})

    def run(
        self,
        play: Play,
        update: Refresh | None = None,
        maxfail: int = 0,
        **changed: Any,
    ) -> RunResult:
        """Return what *play* came to, be it interrupted."""
        self._monkeypatch.setattr(
            rounds, "WorkerPool", lambda *given: PlayedChildren(play, given[3])
        )
        measuring = rounds.Rounds(
            self.settings(update, **changed),
            Project(
                rootdir=self.folder,
                directory=str(self.folder),
                search_path=(),
                arguments=(),
                options={},
            ),
            self.said.append,
            maxfail=maxfail,
        )
        evaluator = RunEvaluator(measuring)
        plan = [
            Planned(
                test=test,
                argument=test,
                module="t.py",
                may_fail=test in play.may_fail,
            )
            for test in play.tests
        ]
        try:
            return evaluator.evaluate(plan, Seen(tests=tuple(play.tests)))
        except KeyboardInterrupt:
            assert evaluator.interrupted is not None
            return evaluator.interrupted
