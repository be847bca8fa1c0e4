"""A real step that fails leaves evidence, and nothing in it says whose machine it was."""

from __future__ import annotations

import gzip
import json

import pytest
from local_strings import leaks
from scripted_project import ScriptedProject


pytest.importorskip("torch")

TRAINING = """
import os
import torch

@gpuperf.budget(ms=0.0001, on="cpu")
@gpuperf.budget(syncs=0)
def test_item(gpuperf):
    model = torch.nn.Linear(64, 10, device=gpuperf.device)
    x = torch.randn(32, 64, device=gpuperf.device)
    def step():
        with torch.profiler.record_function(f"load {os.environ['HOME']}/x.pt"):
            return model(x).sum().item()
    gpuperf(step)
"""


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_a_real_step_leaves_nothing_of_this_machine(
    project: ScriptedProject, local_strings: list[str], device: str
) -> None:
    project.file(TRAINING)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", f"--gpuperf-device={device}"
    )

    result.assert_outcomes(failed=1)
    assert leaks(project, local_strings) == []
    if device == "cpu":
        assert_traced(project)


def assert_traced(project: ScriptedProject) -> None:
    (trace,) = (project.path / ".gpuperf" / "traces").iterdir()
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    names = [event["name"] for event in events]
    assert names.count("gpuperf.step") == names.count("load x.pt") == 3
    assert "aten::addmm" in names
    timed = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in timed)
