"""Where warnings are errors, our own use of torch fails nobody's test."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

EACH_DEVICE = pytest.mark.parametrize("device", ["cpu", "simulated"])

WARNING_TORCH = """
import warnings

import pytest
import torch

USED = {
    torch.profiler.profile: ("__init__", "start", "stop", "step", "export_chrome_trace"),
    torch: ("set_num_threads",),
}

@pytest.fixture(autouse=True)
def warning(monkeypatch):
    for owner, names in USED.items():
        for name in names:
            monkeypatch.setattr(owner, name, warning_as_well(name, getattr(owner, name)))

def warning_as_well(name, plain):
    def warns(*arguments, **named):
        warnings.warn(f"{name} warns", UserWarning, stacklevel=2)
        return plain(*arguments, **named)
    return warns
"""
"""What a torch may warn of that the code of a test never calls."""

STEPS = """
import warnings

import torch

def test_clean(gpuperf):
    model = torch.nn.Linear(8, 8).to(gpuperf.device)
    x = torch.rand(4, 8, device=gpuperf.device)
    gpuperf(lambda: model(x).sum().backward())

def test_warns(gpuperf):
    gpuperf(lambda: warnings.warn("theirs", UserWarning, stacklevel=1))
"""


@EACH_DEVICE
def test_a_clean_test_is_green_and_a_step_that_warns_is_red(
    project: ScriptedProject, device: str
) -> None:
    project.pytester.makeini("[pytest]\nfilterwarnings = error\n")
    (project.path / "conftest.py").write_text(WARNING_TORCH, encoding="utf-8")
    project.file(STEPS)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", f"--gpuperf-device={device}"
    )

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *UserWarning: theirs"])
    result.stdout.no_fnmatch_line("* warns*")


def test_a_watched_suite_is_green(project: ScriptedProject) -> None:
    project.pytester.makeini("[pytest]\nfilterwarnings = error\n")
    (project.path / "conftest.py").write_text(WARNING_TORCH, encoding="utf-8")
    project.file("import torch\ndef test_it(): torch.ones(3, device='cuda').sum()\n")

    result = project.pytester.runpytest_inprocess("--gpuperf-watch")

    result.assert_outcomes(passed=1)
