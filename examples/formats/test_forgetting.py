"""Examples that a network forgets while it learns, and the many that it never does.

Half of the examples, the forgotten ones first, train almost as well as all, in half the
steps; half of them by chance do not. The ranking costs a few full runs: it pays where many
follow.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F


EPOCHS, BATCH = 15, 32
TRAINED, KEPT = 1400, 700
NETWORKS = 8


class Digits:
    """The 1797 digits that scikit-learn brings, as tensors; the last 397 are for tests."""

    def __init__(self):
        datasets = pytest.importorskip("sklearn.datasets")
        pixels, labels = datasets.load_digits(return_X_y=True)
        torch.manual_seed(0)
        order = torch.randperm(len(labels))
        self.images = torch.as_tensor(pixels, dtype=torch.float32)[order] / 16
        self.labels = torch.as_tensor(labels)[order]


class Run:
    """Eight networks trained side by side, and how often they forgot each digit."""

    def __init__(self, digits, chosen, seed=0):
        torch.manual_seed(seed)
        self.hidden = nn.Parameter(torch.randn(NETWORKS, 64, 64) / 8)
        self.last = nn.Parameter(torch.randn(NETWORKS, 64, 10) / 8)
        self.optimizer = torch.optim.Adam([self.hidden, self.last], 1e-2)
        self.known = torch.zeros(NETWORKS, TRAINED, dtype=torch.bool)
        self.forgotten = torch.zeros(NETWORKS, TRAINED, dtype=torch.long)
        self.steps = 0
        for _ in range(EPOCHS):
            for batch in chosen[torch.randperm(len(chosen))].split(BATCH):
                self.learn(batch, digits.images[batch], digits.labels[batch])
        right = self.guess(digits.images[TRAINED:]).argmax(2) == digits.labels[TRAINED:]
        self.accuracy = right.double().mean().item()

    def guess(self, images):
        return torch.relu(images @ self.hidden) @ self.last

    def learn(self, batch, images, labels):
        guessed = self.guess(images)
        F.cross_entropy(guessed.flatten(0, 1), labels.repeat(NETWORKS)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        right = guessed.argmax(2) == labels
        self.forgotten[:, batch] += self.known[:, batch] & ~right
        self.known[:, batch] = right


@pytest.mark.claim("D19")
def test_half_the_steps_on_what_is_forgotten_train_almost_as_well(shown):
    digits = Digits()
    full = Run(digits, torch.arange(TRAINED))
    forgotten = (full.forgotten + EPOCHS * ~full.known).sum(0)

    kept = Run(digits, forgotten.argsort(descending=True, stable=True)[:KEPT])
    by_chance = Run(digits, torch.arange(KEPT))

    shown(full.steps, kept.steps, "steps")
    assert (full.steps, kept.steps, by_chance.steps) == (660, 330, 330)
    assert kept.accuracy > full.accuracy - 0.02
    assert kept.accuracy > by_chance.accuracy
