"""A project in a folder, run with the plugin on the scripted device."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from builders import SCRIPTED, USUAL, an_entry, entries_in, save

from pytest_gpuperf.model.baseline import FULL_RUNS


Script = dict[str, object]

ON = ("--gpuperf", "--gpuperf-device=scripted")


_RECORDED: dict[tuple[str, ...], str] = {}


@dataclass(frozen=True)
class Case:
    """How pytest reported one test, and with which words."""

    outcome: str
    text: str

    def has(self, outcome: str, *words: str) -> bool:
        """Whether it ended so and says these *words*, in this order."""
        pattern = ".*".join(map(re.escape, words))
        return self.outcome == outcome and bool(re.search(pattern, self.text))


def cases_in(junit: Path) -> dict[str, Case]:
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


def otherwise(
    cases: Mapping[str, Case], wanted: Mapping[str, tuple[str, ...]]
) -> list[Case]:
    """Return those of *cases* that did not end, and say, as is *wanted* of them."""
    return [cases[name] for name in wanted if not cases[name].has(*wanted[name])]


TEN_MS: Final = {"step_ms": 10.0}


def store(file: Path, *calls: str, times: Mapping[str, float] = TEN_MS) -> None:
    """Write a baseline of these *calls* in ``test_it.py``, of full runs with *times*."""
    anchor = {**times, **USUAL}
    entry = an_entry(*[times] * FULL_RUNS, exact=USUAL, anchor=anchor)
    save(file, SCRIPTED, **{f"test_it.py::{call}": entry for call in calls})


class ScriptedProject:
    """A test file and the script that its steps play."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def file(self, source: str) -> None:
        self.pytester.makepyfile(
            test_it="import pytest\nimport pytest_gpuperf as gpuperf\n" + source
        )

    def script(self, script: Script) -> None:
        (self.path / "script.json").write_text(json.dumps(script), encoding="utf-8")

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in this process, measuring in children."""
        return self.pytester.runpytest_inprocess(*ON, *arguments)

    def refresh(self, *arguments: str, which: str = "missing") -> pytest.RunResult:
        return self.run(f"--gpuperf-update={which}", *arguments)

    def record(self, *arguments: str) -> None:
        """Store the baseline of a refresh, which the first of equal projects makes."""
        known = tuple(
            (self.path / n).read_text() for n in ("test_it.py", "script.json")
        )
        if known not in _RECORDED:
            self.refresh(*arguments)
            _RECORDED[known] = self.baseline.read_text()
        self.baseline.parent.mkdir(exist_ok=True)
        self.baseline.write_text(_RECORDED[known])

    def store(self, *calls: str, times: Mapping[str, float] = TEN_MS) -> None:
        store(self.baseline, *calls, times=times)

    def cases(self, *arguments: str) -> dict[str, Case]:
        """Run pytest as ``run`` does, and say how it reported each test."""
        reported = ("--junit-xml=junit.xml", "-o", "junit_family=xunit1")
        self.shown = self.run(*reported, *arguments)
        return cases_in(self.path / "junit.xml")

    @property
    def baseline(self) -> Path:
        return self.path / "baselines" / "scripted.json"

    def entries(self) -> dict[str, Any]:
        return entries_in(self.baseline)
