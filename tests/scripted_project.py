"""A project in a folder, run with the plugin on the scripted device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import entries_in


Script = dict[str, object]

ON = ("--gpuperf", "--gpuperf-device=scripted")


_RECORDED: dict[tuple[str, ...], str] = {}


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

    @property
    def baseline(self) -> Path:
        return self.path / "baselines" / "scripted.json"

    def entries(self) -> dict[str, Any]:
        return entries_in(self.baseline)
