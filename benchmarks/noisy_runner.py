"""Does a gate decide on a shared runner, and does it blame nobody wrongly there?

    python benchmarks/noisy_runner.py run [--tests 40] [--burners 0 1 2 4] [--out FILE]
    python benchmarks/noisy_runner.py show [FILE]

Records the baselines of a suite of CPU steps in a git repository, beside as many
processes that compute as the gate will have. Commits a change that slows nothing, then
ones that slow each step by 10, 25 and 50 %, and gates each commit as CI does, with the
defaults. A file that is there is continued. Exits with 1 unless 50, 90 and 99 % of the
slower steps are blamed, no unchanged one is, and at most 5 % stay undecided.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from burners import burning
from continued import load


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
        print(
            f"{burners} burners, {factor:g}x: {len(group)} tests, {blamed} blamed, "
            f"{undecided} undecided, {group[0].seconds_per_test:.1f} s per test",
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
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--tests", type=int, default=40)
    parser.add_argument("--burners", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.command == "run":
        run(asked.tests, asked.burners, asked.out)
    path = asked.out if asked.command == "run" else asked.file
    return 0 if show(load(path, Row)) else 1


if __name__ == "__main__":
    sys.exit(main())
