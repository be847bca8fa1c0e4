"""Fourteen regressions of one training test, and changes that are none, on real torch.

What counts, copies, operations and bytes show is the same on every machine, so nothing
here looks at a clock. The clean test is measured once and its baseline shared: what each
edited copy of it is judged against.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from training_regressions import CLEAN, HARMLESS, REGRESSIONS


pytest.importorskip("torch")

CLEAN_TEST = "test_clean.py"

EDITS = {**REGRESSIONS, **HARMLESS}

PLACE = re.compile(r"^  --> (\S+\.py):(\d+) ")

BY_COUNTING = {name: edit for name, edit in REGRESSIONS.items() if edit.metric}

WITH_A_LINE = {name: edit for name, edit in BY_COUNTING.items() if edit.line}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run over edited tests: what ``results.json`` says, and what was printed."""

    folder: Path
    results: dict[str, Any]
    printed: str
    code: int

    def outcome(self, name: str) -> str:
        return str(self.results[node_id(name)]["outcome"])

    def failing(self, name: str) -> set[str]:
        verdicts = self.results[node_id(name)]["verdicts"]
        found = [v for verdict in verdicts for v in verdict["verdicts"]]
        return {v["metric"] for v in found if v["outcome"] == "regressed"}

    def first_line(self, name: str) -> str:
        """The text of the line that the failure names first."""
        titled = rf"_{{3,}} test_{name} _{{3,}}\n(.*?)(?=\n_{{3,}} |\n={{3,}} )"
        failure = re.search(titled, self.printed, re.DOTALL)
        assert failure, self.printed
        lines = failure[1].splitlines()
        place = next(found for line in lines if (found := PLACE.match(line)))
        source = (self.folder / place[1]).read_text().splitlines()
        return source[int(place[2]) - 1].strip()


def node_id(name: str) -> str:
    return f"test_{name}.py::test_{name}"


def source_of(name: str) -> str:
    edit = EDITS[name]
    source = edit.of(CLEAN) if edit.old else CLEAN
    return source.replace("def test_step(", f"def test_{name}(")


def measured(
    folder: Path, device: str, *arguments: str, cwd: Path | None = None
) -> Any:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "CI"},
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_gpuperf.plugin",
    }
    command = [sys.executable, "-m", "pytest", f"--rootdir={folder}", "-p"]
    command += ["no:cacheprovider", "--gpuperf", f"--gpuperf-device={device}"]
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd or folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def judged(folder: Path, device: str, names: list[str], *arguments: str) -> Judged:
    """Record the clean test, share its baseline, and judge each of *names* by it."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / CLEAN_TEST).write_text(CLEAN)
    stored = measured(folder, device, "--gpuperf-update=missing", *arguments)
    assert stored.returncode == 0, stored.stdout + stored.stderr
    (baseline,) = (folder / "baselines").glob("*.json")
    document = json.loads(baseline.read_text())
    entry = json.dumps(document["tests"].pop(f"{CLEAN_TEST}::test_step"))
    (folder / CLEAN_TEST).unlink()
    for name in names:
        (folder / f"test_{name}.py").write_text(source_of(name))
        own = entry.replace(CLEAN_TEST, f"test_{name}.py")
        document["tests"][node_id(name)] = json.loads(own)
    baseline.write_text(json.dumps(document))
    run = measured(folder, device, *arguments)
    results = json.loads((folder / ".gpuperf" / "results.json").read_text())
    return Judged(
        folder=folder,
        results=results["tests"],
        printed=run.stdout + run.stderr,
        code=run.returncode,
    )


@pytest.fixture(scope="module")
def on_simulated(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    # A brief look at further steps: no edit adds what only some steps do.
    folder = tmp_path_factory.mktemp("simulated")
    return judged(folder, "simulated", list(EDITS), "--gpuperf-seconds=10")


@pytest.mark.parametrize("name", BY_COUNTING)
def test_a_regression_is_caught_without_a_gpu(on_simulated: Judged, name: str) -> None:
    assert on_simulated.outcome(name) == "regressed", on_simulated.printed
    assert BY_COUNTING[name].metric in on_simulated.failing(name)


@pytest.mark.parametrize("name", WITH_A_LINE)
def test_its_line_is_named_first(on_simulated: Judged, name: str) -> None:
    assert on_simulated.first_line(name) == WITH_A_LINE[name].line


def test_thirteen_of_the_fourteen_are_caught_and_the_run_fails(
    on_simulated: Judged,
) -> None:
    caught = [name for name in REGRESSIONS if on_simulated.outcome(name) == "regressed"]

    assert len(REGRESSIONS) == 14
    assert len(caught) >= 13
    assert on_simulated.code == 1


@pytest.mark.parametrize("name", HARMLESS)
def test_a_change_that_costs_nothing_passes(on_simulated: Judged, name: str) -> None:
    assert on_simulated.outcome(name) == "pass", on_simulated.printed


def test_a_selected_test_passes_from_another_working_folder(
    on_simulated: Judged, tmp_path: Path
) -> None:
    file = str(on_simulated.folder / "test_unchanged.py")

    run = measured(
        on_simulated.folder, "simulated", file, "-k", "unchanged", cwd=tmp_path
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "gpuperf: 1 passed on simulated GPU" in run.stdout
