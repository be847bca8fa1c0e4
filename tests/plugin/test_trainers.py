"""``gpuperf.trainer`` runs a loop that it does not know, and measures its steps."""

from __future__ import annotations

import json

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

LOOPS = """
import json
import torch
from pathlib import Path

class Both(torch.optim.Optimizer):
    \"\"\"Is an optimizer itself, and has one for each part, as torchtitan's.\"\"\"

    def __init__(self, parameters, *parts):
        self.parts = parts
        super().__init__(parameters, {})

    def step(self):
        for part in self.parts:
            part.step()

class Titan:
    \"\"\"A trainer as projects write their own: two optimizers, and steps without end.\"\"\"

    def __init__(self, device, most):
        self.model = torch.nn.Linear(64, 64).to(device)
        weight, bias = self.model.parameters()
        parts = torch.optim.AdamW([weight]), torch.optim.SGD([bias])
        self.optimizer = Both([weight, bias], *parts)
        self.rows, self.most, self.steps = torch.randn(8, 64), most, 0

    def train(self):
        while self.steps < self.most:
            self.step()

    def step(self):
        self.steps += 1
        self.model(self.rows.to(self.model.weight.device)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

def keep(gpuperf, name):
    if gpuperf.measurement is not None:
        Path(name).write_text(json.dumps(dict(gpuperf.measurement.exact)))

def test_by_hand(gpuperf):
    gpuperf(Titan(gpuperf.device, 0).step)
    keep(gpuperf, "hand.json")

def test_by_trainer(gpuperf):
    titan = Titan(gpuperf.device, 10**6)
    gpuperf.trainer(titan, samples=8)
    keep(gpuperf, "trainer.json")
    assert titan.steps < 200

def test_by_function(gpuperf):
    epochs = []
    def epoch(device):
        epochs.append(1)
        Titan(device, 2).train()
    gpuperf.trainer(epoch, gpuperf.device)
    assert len(epochs) >= 1

def test_too_short(gpuperf):
    gpuperf.trainer(Titan(gpuperf.device, 1 if Path("measured").exists() else 9))

def test_stranger(gpuperf):
    gpuperf.trainer(Titan(gpuperf.device, 1).model)
"""


def test_a_trainer_of_a_project_has_the_numbers_of_its_step(
    project: ScriptedProject,
) -> None:
    project.file(LOOPS)
    (project.path / "measured").touch()

    result = project.run("--gpuperf-device=simulated")

    result.assert_outcomes(passed=3, failed=2)
    hand, trainer = (
        json.loads((project.path / name).read_text())
        for name in ("hand.json", "trainer.json")
    )
    assert trainer == hand
    result.stdout.fnmatch_lines(
        [
            "gpuperf.trainer(Titan): it ended after 1 step, and measuring takes more: *",
            "  --> test_it.py:* in test_too_short",
            "gpuperf.trainer(trainer): found a Linear of torch.nn.modules.linear, which *",
            "  --> test_it.py:* in test_stranger",
        ]
    )


def test_a_plain_run_does_one_step_of_a_trainer(project: ScriptedProject) -> None:
    project.file(LOOPS + "    # It is refused in a plain run, too.\n")

    result = project.pytester.runpytest_subprocess()

    result.assert_outcomes(passed=4, failed=1)
