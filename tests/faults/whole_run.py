"""One run of pytest on a scripted project, read test by test: an attempt is a case."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desk import Desk, typing_server
from scripted_project import Case, cases_in, store


ON = ("--gpuperf", "--gpuperf-device=scripted", "--gpuperf-seconds=3000")
"""No cap: a busy machine is to change no verdict here."""

IMPORTS = "import pytest\nimport unittest\nimport pytest_gpuperf as gpuperf\n\n"


@dataclass(frozen=True)
class WholeRun:
    """What one run printed, reported and returned."""

    status: int
    lines: list[str]
    cases: dict[str, Case]

    @property
    def last(self) -> str:
        """The line that counts, above pytest's own."""
        return [line for line in self.lines if line.startswith("gpuperf: ")][-1]

    @property
    def text(self) -> str:
        """All that was printed, as one line of single spaces."""
        return " ".join(" ".join(self.lines).split())


def names(source: str) -> list[str]:
    """The tests in *source*."""
    lines = [line.strip() for line in source.splitlines()]
    return [line[4 : line.index("(")] for line in lines if line.startswith("def test_")]


class Folder:
    """A project in a folder of its own, for the tests of a module to share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.script({"*": {"step_ms": 10.0}})

    def file(self, source: str, name: str = "test_it.py") -> None:
        (self.path / name).write_text(IMPORTS + source, encoding="utf-8")

    def script(self, script: dict[str, object]) -> None:
        (self.path / "script.json").write_text(json.dumps(script), encoding="utf-8")

    def results(self) -> dict[str, Any]:
        """Read what the last run left."""
        text = (self.path / ".gpuperf" / "results.json").read_text(encoding="utf-8")
        found: dict[str, Any] = json.loads(text)
        return found

    def refresh(self) -> WholeRun:
        return self.run("--gpuperf-update=all")

    def store(self, calls: Iterable[str]) -> None:
        """Store a baseline of each of the *calls* in ``test_it.py``."""
        store(self.path / "baselines" / "scripted.json", *calls)

    def run(
        self,
        *arguments: str,
        on: tuple[str, ...] = ON,
        ci: str = "",
        **environment: str,
    ) -> WholeRun:
        """Run pytest; *ci* is the variable that a CI service sets."""
        junit = self.path / "junit.xml"
        junit.unlink(missing_ok=True)
        reported = (f"--junit-xml={junit}", "-o", "junit_family=xunit1")
        command = (
            "pytest",
            "-rA",
            "-p",
            "no:cacheprovider",
            *reported,
            *on,
            *arguments,
        )
        typed = Desk(self.path, typing_server())
        ended = typed.type(shlex.join(command), CI=ci, **environment)
        cases = cases_in(junit) if junit.exists() else {}
        return WholeRun(ended.status, ended.text.splitlines(), cases)
