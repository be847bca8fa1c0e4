"""The end of a run on a terminal, and what is said while it goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from builders import H200, MIB, a_test, a_verdict, some_evidence, text_of
from golden_suite import NOISY, SHIFT, VERDICTS

from pytest_gpuperf.model.baseline import BaselineChange, Drift, Kept, Leftovers
from pytest_gpuperf.model.run import Ending, Report, Unseen
from pytest_gpuperf.model.verdict import DecidedBy, Outcome, TestVerdict
from pytest_gpuperf.plugin.terminal import write_nothing, write_summary
from pytest_gpuperf.report.screen.acceptance import misplaced_lines, other_device_lines
from pytest_gpuperf.report.screen.summary import Interrupted, interruption_lines
from pytest_gpuperf.runner.evaluation import RunResult
from pytest_gpuperf.runner.pool import Progress


BASELINE_FILE: Final = "baselines/cuda-nvidia-h200.json"


@dataclass
class Terminal:
    """What pytest's reporter is to the plugin; a line begins with its colour."""

    verbosity: int = 0
    lines: list[str] = field(default_factory=list)
    rootpath: Path = field(default_factory=Path.cwd)

    @property
    def config(self) -> Terminal:
        return self

    @property
    def text(self) -> str:
        return text_of(self.lines)

    def get_verbosity(self) -> int:
        return self.verbosity

    def getoption(self, _name: str) -> None:
        """No option was typed."""

    def write_line(self, text: str, **markup: bool) -> None:
        self.lines.append(f"{'+'.join(markup):6} | {text}")

    def write_sep(self, sign: str, title: str) -> None:
        self.lines.append(f"{'':6} | {sign * 3} {title} {sign * 3}")


def in_columns(columns: int, make: Callable[[], str]) -> str:
    """What *make* returns on a terminal that is so wide."""
    with patch.dict(os.environ, COLUMNS=str(columns)):
        return make()


def ended(
    run_result: RunResult, unseen: Unseen | None = None, *, verbosity: int = 0
) -> str:
    """The section at the end of a run."""
    terminal = Terminal(verbosity)
    write_summary(terminal, run_result, unseen or Unseen())
    return terminal.text


def assessed(*verdicts: TestVerdict, **fields: Any) -> RunResult:
    reports = {
        verdict.test: Report(
            test=verdict.test,
            ending=Ending.FAILED if verdict.outcome.fails else Ending.PASSED,
            verdicts=("{}",),
        )
        for verdict in verdicts
    }
    fields.setdefault("has_commits", True)
    return RunResult(
        hardware=H200,
        baseline_file=BASELINE_FILE,
        stored=("one",),
        verdicts=verdicts,
        reports={**reports, **fields.pop("reports", {})},
        **fields,
    )


def every_outcome() -> str:
    failed = Report(test="t", ending=Ending.FAILED, text="ValueError: 3")
    found = assessed(
        *VERDICTS,
        acuity=NOISY,
        suite=SHIFT,
        reports={"tests/test_train.py::test_raises": failed},
        skipped_files=("tests/test_gpu.py",),
        note="GPU 1 of 8",
        unmeasured=("tests/test_train.py::test_last",),
        stopped="NOT MEASURED, stopped after 1 failure",
    )
    return ended(found)


def explained() -> str:
    rules = a_test(
        *(
            a_verdict(evidence=some_evidence(rule=rule, discount=-0.01))
            for rule in DecidedBy
        ),
        test="tests/test_train.py::test_rules",
    )
    return ended(assessed(*VERDICTS, rules, explained=True), verbosity=1)


def refreshed() -> str:
    stored = {
        ("t.py::a", "step_ms"): (10.0, 10.2, 9.9),
        ("t.py::a", "peak_allocated_bytes"): (MIB, MIB + 1, None),
        ("t.py::b", "syncs"): (None, 1, None),
        ("t.py::c", "syncs"): (1, None, 1),
        ("t.py::d", "step_ms"): (10.0, 9.0, None),
        ("t.py::d", "syncs"): (1, 2, 2),
        ("t.py::d", "of_another_version"): (1, 1, None),
        ("t.py::new", "step_ms"): (None, 1.893, None),
        ("t.py::new", "peak_allocated_bytes"): (None, 3_719_168, None),
        ("t.py::new", "syncs"): (None, 0, None),
        ("t.py::new", "pageable_copies"): (None, 2, None),
    }
    changes = tuple(
        BaselineChange(test=test, metric=metric, old=old, new=new, anchor=anchor)
        for (test, metric), (old, new, anchor) in stored.items()
    )
    drift = Drift(
        test="t.py::d",
        metric="step_ms",
        anchor=10.0,
        now=10.4,
        limit=10.3,
        bound="detect 3 %",
    )
    found = assessed(
        a_test(test="t.py::a"),
        refreshed=changes,
        kept=(
            Kept(test="t.py::e", metric="step_ms", stored=10, now=10.01, noise=0.002),
            Kept(test="t.py::f", metric="syncs", stored=1, now=1, noise=None),
        ),
        drifts=(drift,),
        drifted_tests=("t.py::d",),
        not_refreshed=("t.py::d",),
        leftovers=Leftovers(entries=("t.py::gone",), gone=("t.py::gone",)),
    )
    return ended(found)


def moved_with_torch() -> str:
    moved = a_test(
        a_verdict("launches", Outcome.INCONCLUSIVE, 41, 40, environment_changed=True),
        changed={"torch": ("2.12.1", "2.13.0")},
    )
    return ended(assessed(moved), verbosity=-1)


def hidden() -> str:
    """A run that a green last line would hide, and one that measured nothing."""
    unseen = Unseen(
        lost=("t.py::lost",),
        silenced=("t.py::rerun",),
        unmeasured=("t.py::stored", "t.py::stored#eval"),
        is_strict=True,
    )
    text = ended(assessed(a_test()), unseen)
    terminal = Terminal()
    write_nothing(terminal, Unseen(lost=("t.py::lost",)), "no test was selected")
    write_nothing(terminal, Unseen(), "no test was selected")
    lines = (
        *misplaced_lines(BASELINE_FILE, "/project"),
        *other_device_lines("NVIDIA H200", "baselines", "simulated"),
    )
    return text + terminal.text + text_of(line.text for line in lines)


def progress() -> str:
    said: list[str] = []
    now = iter((0.0, 20.0, 460.0, 462.0))
    followed = Progress(said.append, lambda: next(now))
    followed.begin([("t.py::test_step",), ("t.py::test_last",)], 0)
    followed.started(0)
    followed.arrived("t.py::test_step#train", "warm-up, step 3")
    followed.ended(0)
    followed.begin([("t.py::test_last",)], None)
    followed.started(0)
    command = "gpuperf refresh --kind=missing"
    kept = (
        Interrupted(complete="abc", thin="d", lost="ef", enough=5),
        Interrupted(complete=(), thin=(), lost="a", enough=5),
        Interrupted(
            complete=(), thin=(), lost=(), enough=5, failure="the disk is full"
        ),
    )
    stopped = (interruption_lines(each, BASELINE_FILE, command) for each in kept)
    lines = [*said, *(x for each in stopped for x in each)]
    return text_of(lines)


RUNS: Final[Mapping[str, Callable[[], str]]] = {
    "run-80-columns.txt": every_outcome,
    "run-120-columns.txt": partial(in_columns, 120, every_outcome),
    "run-explained.txt": explained,
    "run-refreshed.txt": refreshed,
    "run-quiet-moved-with-torch.txt": moved_with_torch,
    "run-hidden-tests.txt": hidden,
    "run-progress.txt": progress,
}
