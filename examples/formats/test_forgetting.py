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
SEEDS = range(3)


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
    """A network trained on some of the digits, and how often it forgot each of them."""

    def __init__(self, digits, chosen, seed):
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.optimizer = torch.optim.Adam(self.network.parameters(), 1e-2)
        self.known = torch.zeros(TRAINED, dtype=torch.bool)
        self.forgotten = torch.zeros(TRAINED, dtype=torch.long)
        self.steps = 0
        for _ in range(EPOCHS):
            for batch in chosen[torch.randperm(len(chosen))].split(BATCH):
                self.learn(batch, digits.images[batch], digits.labels[batch])
        guessed = self.network(digits.images[TRAINED:]).argmax(1)
        self.accuracy = (guessed == digits.labels[TRAINED:]).double().mean().item()

    def learn(self, batch, images, labels):
        guessed = self.network(images)
        F.cross_entropy(guessed, labels).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        right = guessed.argmax(1) == labels
        self.forgotten[batch] += self.known[batch] & ~right
        self.known[batch] = right


def runs(digits, chosen):
    return [Run(digits, chosen, seed) for seed in SEEDS]


def accuracy(of):
    return sum(run.accuracy for run in of) / len(of)


@pytest.mark.claim("D19")
def test_half_the_steps_on_what_is_forgotten_train_almost_as_well(shown):
    digits = Digits()
    full = runs(digits, torch.arange(TRAINED))
    forgotten = sum(run.forgotten + EPOCHS * ~run.known for run in full)

    kept = runs(digits, forgotten.argsort(descending=True, stable=True)[:KEPT])
    by_chance = runs(digits, torch.arange(KEPT))

    shown(full[0].steps, kept[0].steps, "steps")
    assert (full[0].steps, kept[0].steps, by_chance[0].steps) == (660, 330, 330)
    assert accuracy(kept) > accuracy(full) - 0.02
    assert accuracy(kept) > accuracy(by_chance)
