"""One run of pytest on a scripted project, read test by test: an attempt is a case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET


ON = ("--gpuperf", "--gpuperf-device=scripted", "--gpuperf-seconds=3000")
"""No cap: a busy machine is to change no verdict here."""

IMPORTS = "import pytest\nimport unittest\nimport pytest_gpuperf as gpuperf\n\n"


@dataclass(frozen=True)
class Case:
    """How pytest reported one test, and with which words."""

    outcome: str
    text: str


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


class Folder:
    """A project in a folder of its own, for the tests of a module to share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.script({"*": {"step_ms": 10.0}})

    def file(self, source: str, name: str = "test_it.py") -> None:
        (self.path / name).write_text(IMPORTS + source, encoding="utf-8")

    def script(self, script: dict[str, object]) -> None:
        (self.path / "script.json").write_text(json.dumps(script), encoding="utf-8")

    def refresh(self) -> WholeRun:
        return self.run("--gpuperf-update=all")

    def store(self, calls: Iterable[str]) -> None:
        """Store one recorded baseline as that of each of the *calls* in ``test_it.py``."""
        self.file("def test_seed(gpuperf): gpuperf(int)\n", "test_seed.py")
        recorded = self.run("--gpuperf-update=all", "test_seed.py")
        (self.path / "test_seed.py").unlink()
        assert recorded.status == 0, recorded.text
        path = self.path / "baselines" / "scripted.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        (entry,) = document["tests"].values()
        document["tests"] = {f"test_it.py::{call}": entry for call in sorted(calls)}
        path.write_text(json.dumps(document, indent=2), encoding="utf-8")

    def run(self, *arguments: str, on: tuple[str, ...] = ON, ci: str = "") -> WholeRun:
        """Run pytest; *ci* is the variable that a CI service sets."""
        junit = self.path / "junit.xml"
        junit.unlink(missing_ok=True)
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        environ |= {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_gpuperf.plugin",
            "GPUPERF_SCRIPT": str(self.path / "script.json"),
            "CI": ci,
        }
        ended = subprocess.run(  # noqa: PLW1510 - its status is what is asked for
            [
                *(sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"),
                *(f"--junit-xml={junit}", "-o", "junit_family=xunit1"),
                *(*on, *arguments),
            ],
            cwd=self.path,
            env=environ,
            text=True,
            capture_output=True,
        )
        out = (ended.stdout + ended.stderr).splitlines()
        return WholeRun(ended.returncode, out, _cases(junit) if junit.exists() else {})


def _cases(junit: Path) -> dict[str, Case]:
    """Read each test by its bare name; the worst that was said of it stands."""
    found: dict[str, Case] = {}
    for node in ET.parse(junit).iter("testcase"):
        name = str(node.get("name"))
        ends = [child for child in node if child.tag in {"failure", "error", "skipped"}]
        outcome = ends[0].tag if ends else "passed"
        text = " ".join(f"{child.get('message')} {child.text or ''}" for child in ends)
        if found.get(name, Case("passed", "")).outcome == "passed":
            found[name] = Case(outcome, " ".join(text.split()))
    return found
