"""The maintainers' sweep over torch's samples tells what fails and what does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


SCRIPT = Path(__file__).parents[3] / "tools" / "opinfo_sweep.py"

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def sweep() -> ModuleType:
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    spec = importlib.util.spec_from_file_location("opinfo_sweep", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_operations_that_run_are_only_counted(
    sweep: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    code = sweep.main(["cumprod"])

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "forward   2 operations, 0 failed",
        "backward  2 operations, 0 failed",
    ]
