"""What ``pytest --gpuperf-watch`` costs a suite: 40 tests that each train 20 steps.

    python benchmarks/watch.py [--rounds 5] [--tests 40] [--steps 20]

A quarter of the tests each trains a perceptron, a convolution, an LSTM and a transformer's
layer, on ``cuda`` if torch has one, else on the CPU. Each round runs the suite twice in
fresh interpreters with one thread, as threads that wait for work take CPU time: in turns
plain, and watched, on the GPU or else on the simulated one. Printed are the medians of the
time by the wall and of the CPU time, with that of the second pytest that watching on the
simulated GPU starts, and their ratio. The bar on a GPU is 1.3 of CPU time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Final

from process_cost import Cost
from process_cost import cost_of
from process_cost import middle


BAR: Final = 1.3

SUITE: Final = '''"""Small models learn random numbers."""

import pytest
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, rows):
        return self.last(self.layer(rows)[0][:, -1])


MODELS = {
    "perceptron": ((64, 784), lambda: nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))),
    "convolution": ((64, 1, 28, 28), lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 121, 10))),
    "recurrent": ((64, 32, 32), Recurrent),
    "attention": ((64, 16, 64), lambda: nn.Sequential(
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
        nn.Flatten(), nn.Linear(16 * 64, 10))),
}


@pytest.mark.parametrize("seed", range({seeds}))
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns(name, seed):
    torch.manual_seed(seed)
    shape, build = MODELS[name]
    model = build().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch, labels = torch.randn(shape), torch.randint(10, (shape[0],))
    losses = []
    for _ in range({steps}):
        loss = nn.functional.cross_entropy(model(batch.to(DEVICE)), labels.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] <= losses[0]
'''

COMMANDS: Final = {"plain": (), "watched": ("--gpuperf-watch",)}


def main() -> None:
    """Run both in turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tests", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    found: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        text = SUITE.replace("{seeds}", str(asked.tests // 4))
        text = text.replace("{steps}", str(asked.steps))
        Path(folder, "test_models.py").write_text(text, encoding="utf-8")
        for _ in range(asked.rounds):
            for name, options in COMMANDS.items():
                command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
                found[name].append(cost_of(command, folder, OMP_NUM_THREADS="1"))
    show(found)


def show(found: dict[str, list[Cost]]) -> None:
    """Print the medians and their ratio."""
    rounds = len(found["plain"])
    print(f"{rounds} rounds in turns, load average {os.getloadavg()[0]:.1f} at the end")
    middles = {name: middle(costs) for name, costs in found.items()}
    for name, (wall, cpu) in middles.items():
        print(f"{name:<8} {wall:6.2f} s, {cpu:6.2f} s of CPU time")
    plain, watched = middles["plain"], middles["watched"]
    print(
        f"ratio: {watched.wall / plain.wall:.2f} by the wall, "
        f"{watched.cpu / plain.cpu:.2f} of CPU time; the bar is {BAR:g}"
    )


if __name__ == "__main__":
    main()
