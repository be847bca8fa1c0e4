"""``gpuperf.trainer`` runs a trainer that is built as torchtitan's, of many parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

TITAN = '''
import json
from pathlib import Path
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

class Optimizers(Optimizer):
    """Is an optimizer itself, and has one for each part of the model."""

    def __init__(self, parts):
        self.parts = [torch.optim.AdamW(part.parameters(), lr=1e-3) for part in parts]
        super().__init__([p for part in parts for p in part.parameters()], {})

    def step(self, closure=None):
        for part in self.parts:
            part.step()

    def zero_grad(self, *args, **kwargs):
        for part in self.parts:
            part.zero_grad(*args, **kwargs)

class Trainer:
    def __init__(self, device, *, steps=10**6, micro_batches=2, log_every=10**6):
        torch.manual_seed(0)
        self.device, self.steps, self.micro_batches = device, steps, micro_batches
        self.model = nn.Sequential(
            nn.Embedding(50, 32), nn.Linear(32, 64), nn.Linear(64, 50)
        ).to(device)
        self.optimizers = Optimizers([self.model[:2], self.model[2:]])
        self.log_every, self.logged = log_every, []
        self.step = 0
        rows = torch.arange(64 * 8).remainder(50).view(64, 8)
        self.dataloader = DataLoader(rows, batch_size=4)

    def batch_generator(self):
        while True:
            for rows in self.dataloader:
                yield {"input": rows[:, :-1]}, rows[:, 1:]

    def forward_backward_step(self, input_dict, labels):
        found = self.model(input_dict["input"].to(self.device)).flatten(0, 1)
        labels = labels.to(self.device).flatten()
        loss = nn.functional.cross_entropy(found, labels) / self.micro_batches
        loss.backward()
        return loss.detach()

    def train_step(self, batches):
        self.optimizers.zero_grad()
        losses = [
            self.forward_backward_step(*next(batches)) for _ in range(self.micro_batches)
        ]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizers.step()
        if self.step % self.log_every == 0:
            self.logged.append((sum(losses).item(), norm.item()))

    def train(self):
        batches = self.batch_generator()
        while self.step < self.steps:
            self.step += 1
            self.train_step(batches)

def keep(gpuperf, name):
    if gpuperf.measurement is not None:
        Path(name).write_text(json.dumps(dict(gpuperf.measurement.exact)))

def test_by_hand(gpuperf):
    trainer = Trainer(gpuperf.device)
    batches = trainer.batch_generator()
    def step():
        trainer.step += 1
        trainer.train_step(batches)
    gpuperf(step)
    keep(gpuperf, "hand.json")

def test_by_trainer(gpuperf):
    trainer = Trainer(gpuperf.device)
    gpuperf.trainer(trainer)
    keep(gpuperf, "trainer.json")
    assert trainer.step < 200

def test_that_logs(gpuperf):
    gpuperf.trainer(Trainer(gpuperf.device, log_every=1))
    keep(gpuperf, "logs.json")
'''


def test_its_steps_have_the_numbers_of_a_step_by_hand(project: ScriptedProject) -> None:
    project.file(TITAN)

    result = project.run("--gpuperf-device=pretend")

    result.assert_outcomes(passed=3, warnings=3)
    hand, trainer, logs = (exact(project, name) for name in ("hand", "trainer", "logs"))
    assert trainer == hand
    assert trainer["predicted_peak_allocated_bytes"] > 0
    # Four pageable copies: inputs and labels of two micro-batches.
    assert trainer["syncs"] == 4
    assert logs["syncs"] == 6


def exact(project: ScriptedProject, name: str) -> dict[str, Any]:
    text = (project.path / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
