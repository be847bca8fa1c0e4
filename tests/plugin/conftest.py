"""Fixtures of the tests that run pytest on a project."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> ScriptedProject:
    """A project whose script says 10 ms a step, no sync, 100 MiB."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin")
    monkeypatch.setenv("GPUPERF_SCRIPT", str(pytester.path / "script.json"))
    monkeypatch.delenv("CI", raising=False)
    made = ScriptedProject(pytester)
    made.script({"*": {"step_ms": 10.0}})
    return made
