from __future__ import annotations

import platform
from importlib import metadata

import pytest

from pytest_gpuperf.devices import preflight as module
from pytest_gpuperf.devices.preflight import software


torch = pytest.importorskip("torch")


def test_the_versions_of_torch_python_and_the_plugin_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "version", {"pytest-gpuperf": "1.2.3"}.__getitem__)

    assert software() == {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "pytest-gpuperf": "1.2.3",
    }


def test_a_plugin_that_runs_from_its_sources_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", absent)

    assert software()["pytest-gpuperf"] == "not installed"
