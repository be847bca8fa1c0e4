"""A project with a suite of ordinary tests, which a pytest of its own watches."""

from __future__ import annotations

import pytest


def watched_suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, **files: str
) -> pytest.Pytester:
    """Write *files* of Python, by name, and let each pytest load the plugin alone."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(**files)
    return pytester
