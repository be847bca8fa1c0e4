"""Which planted training regressions does the gate catch on a CPU?

    python benchmarks/cpu_regressions.py run [--only FAULT ...] [--minutes 60] [--out FILE]
    python benchmarks/cpu_regressions.py show [FILE]

A small training test and the ways to make it worse are those of
``tests/faults/training_regressions.py``. There the tests see to what counts and bytes
show; here time is judged as well. For each fault the clean project is written to a folder
of its own, its baselines are refreshed, the fault is planted, and the project is gated
with ``--gpuperf-device=cpu``. Controls are edits that cost nothing, the unchanged code
among them. A file that is there is continued. Exits with 1 where a fault that a CPU can
show fails no verdict, or a control fails. A busy machine leaves small changes of time
INCONCLUSIVE, which is green.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Final

from continued import load


sys.path.append(str(Path(__file__).parents[1] / "tests" / "faults"))

from training_regressions import CLEAN
from training_regressions import HARMLESS
from training_regressions import REGRESSIONS


RESULTS: Final = Path(__file__).parent / "results" / "cpu_regressions.jsonl"

EDITS: Final = {**REGRESSIONS, **HARMLESS}

CANNOT: Final = {
    "unpinned_copy": "nothing is page-locked without a GPU: the code that runs is the same",
    "constant_from_the_host": (
        "a tensor is not copied from the CPU to the CPU; the product with it adds less "
        "than 2 % of time, and detect is 3 %"
    ),
    "dropout_in_evaluation": (
        "two small masks, and no call of eval(), add less than 2 % of time, and detect is "
        "3 %"
    ),
    "missing_no_grad": (
        "the graph is gone before the peak; to build it adds less than 2 % of "
        "time, and detect is 3 %"
    ),
    "shape_that_recompiles": (
        "nothing is compiled in this project, so a batch that shrinks is only quicker"
    ),
}
"""Faults that a CPU cannot show, and why.

Their share of time is CPU time beside the clean step, in 21 and 120 turns in one process.
"""

TEST: Final = "test_training.py"
NODE: Final = f"{TEST}::test_step"

CHANGE: Final = re.compile(r"^[A-Z][A-Z ]+: .*?, was .*?\(([^)]*)\)", re.MULTILINE)
PLACE: Final = re.compile(r"^  --> (\S+\.py):(\d+)", re.MULTILINE)
FAILING: Final = frozenset({"regressed", "over budget"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One gate: how it ended, what failed first and by how much, and the line it names.

    ``time`` is what the judge said of the time of a step, whatever failed.
    """

    fault: str
    code: int
    outcome: str
    metric: str
    change: str
    at: str
    line: str
    time: str
    seconds: float

    @property
    def is_control(self) -> bool:
        return self.fault in HARMLESS

    @property
    def is_missed(self) -> bool:
        """Whether no verdict failed on a fault that a CPU can show, or a control failed."""
        if self.is_control:
            return self.code != 0
        is_caught = self.code != 0 and self.metric  # without a metric it only broke
        return not is_caught and self.fault not in CANNOT

    @property
    def is_right_line(self) -> str:
        wanted = EDITS[self.fault].line
        if not (wanted and self.metric):
            return "-"
        return "yes" if self.line == wanted else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder with the training test and its baselines."""

    folder: Path

    def write(self, fault: str) -> None:
        edit = EDITS[fault]
        source = edit.of(CLEAN) if edit.old else CLEAN
        (self.folder / TEST).write_text(source, encoding="utf-8")

    def gate(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", f"--rootdir={self.folder}"]
        command += ["-p", "no:cacheprovider", "--gpuperf", "--gpuperf-device=cpu"]
        return subprocess.run(
            [*command, *options],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def refresh(self) -> None:
        """Store the baselines of the clean test."""
        (self.folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        self.write("unchanged")
        stored = self.gate("--gpuperf-update=all")
        if stored.returncode:
            sys.exit(f"no baselines were stored:\n{stored.stdout}{stored.stderr}")

    def judged(self) -> dict[str, Any]:
        """Return what ``results.json`` says of the test."""
        results = json.loads((self.folder / ".gpuperf" / "results.json").read_text())
        test: dict[str, Any] = results["tests"][NODE]
        return test

    def text_of(self, file: str, line: int) -> str:
        lines = (self.folder / file).read_text(encoding="utf-8").splitlines()
        return lines[line - 1].strip()


def environment() -> dict[str, str]:
    """Return the variables of the gate: no other plugin, and no word of a CI."""
    return {
        **{name: value for name, value in os.environ.items() if name != "CI"},
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_gpuperf.plugin",
    }


def once(folder: Path, fault: str) -> Row:
    """Refresh the baselines of the clean test, plant the *fault* and gate."""
    project = Project(folder=folder)
    project.refresh()
    project.write(fault)
    begun = time.monotonic()
    ended = project.gate()
    seconds = round(time.monotonic() - begun, 1)
    judged = project.judged()
    metric = failed_first(judged)
    change = CHANGE.search(ended.stdout)
    place = PLACE.search(ended.stdout) if metric else None
    return Row(
        fault=fault,
        code=ended.returncode,
        outcome=str(judged["outcome"]),
        metric=metric,
        change=change[1] if change and metric else "",
        at=f"{place[1]}:{place[2]}" if place else "",
        line=project.text_of(place[1], int(place[2])) if place else "",
        time=said_of_time(judged),
        seconds=seconds,
    )


def failed_first(judged: dict[str, Any]) -> str:
    return next(
        (v["metric"] for v in verdicts_of(judged) if v["outcome"] in FAILING), ""
    )


def said_of_time(judged: dict[str, Any]) -> str:
    said = (v["because"] for v in verdicts_of(judged) if v["metric"] == "step_ms")
    return next(said, "")


def verdicts_of(judged: dict[str, Any]) -> list[dict[str, Any]]:
    return [v for call in judged["verdicts"] for v in call["verdicts"]]


def run(faults: Sequence[str], minutes: float, path: Path) -> None:
    """Gate one fault after another that is not in *path* yet, until time is up."""
    until = time.monotonic() + 60 * minutes
    path.parent.mkdir(exist_ok=True)
    done = {row.fault for row in load(path, Row)}
    for fault in faults:
        if fault in done or time.monotonic() > until:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = once(Path(folder), fault)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(told(row), flush=True)


def told(row: Row) -> str:
    return (
        f"{row.fault:24}{row.code:5}  {row.outcome:13}{row.metric or '-':17}"
        f"{row.change or '-':12}{row.at or '-':21}{row.is_right_line:5}{row.seconds:8.0f}"
    )


def show(rows: Sequence[Row]) -> bool:
    """Print the faults, then the controls; say whether each ended as it has to."""
    print(
        f"\n{'fault':24}{'exit':>5}  {'outcome':13}{'first failed':17}{'change':12}"
        f"{'at':21}{'right':5}{'seconds':>8}"
    )
    for row in sorted(rows, key=lambda row: list(EDITS).index(row.fault)):
        print(told(row))
    for fault in (row.fault for row in rows if row.fault in CANNOT):
        print(f"no CPU shows {fault}: {CANNOT[fault]}")
    missed = [row for row in rows if row.is_missed]
    for row in missed:
        print(f"not as it has to be: {row.fault}, {row.outcome}, step_ms {row.time}")
    missing = len(EDITS) - len(rows)
    print(f"not as they have to be: {len(missed)} of {len(rows)}; not run: {missing}")
    return not missed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", choices=EDITS, default=list(EDITS))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    path: Path = asked.file
    if asked.command == "run":
        path = asked.out
        run(asked.only, asked.minutes, path)
    return 0 if show(load(path, Row)) else 1


if __name__ == "__main__":
    sys.exit(main())
