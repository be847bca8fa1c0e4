"""How long the first finding takes: ``gpuperf audit`` of a training script of 60 lines.

    python benchmarks/first_finding.py [--rounds 5]

The script trains a small convolutional network on random images of MNIST's size, ten
steps of 64 images, and reads the loss of each. Each round runs it twice in fresh
interpreters, in turns: as ``python train.py`` on the CPU, and under ``gpuperf audit`` on
the simulated GPU. Printed are the medians of the time by the wall and of the CPU time, and
the ratio of both: the wall's depends on what else the machine does. The bar is 10 s on two
quiet cores.
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


BAR_SECONDS: Final = 10.0

TRAINING: Final = '''"""Train a small network on random images of MNIST's size."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        x = torch.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = torch.relu(self.fc1(x))
        return self.fc2(x)


def train(model, device, loader, optimizer):
    model.train()
    total, hits = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        output = model(images)
        loss = nn.functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        hits += (output.argmax(1) == labels).sum().item()
    return total, hits


def main():
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    torch.manual_seed(0)
    images = torch.randn(640, 1, 28, 28)
    labels = torch.randint(0, 10, (640,))
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1):
        total, hits = train(model, device, loader, optimizer)
        print(f"epoch {epoch}: loss {total:.3f}, {hits} right")
    torch.save(model.state_dict(), "mnist.pt")


if __name__ == "__main__":
    main()
'''


def main() -> None:
    """Run both in turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    commands = {
        "python train.py cpu": ("train.py", "cpu"),
        "gpuperf audit train.py": ("-m", "pytest_gpuperf", "audit", "train.py"),
    }
    found: dict[str, list[Cost]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(TRAINING, encoding="utf-8")
        for _ in range(rounds):
            for name, arguments in commands.items():
                found[name].append(cost_of(arguments, folder))
    load = os.getloadavg()[0]
    print(f"{rounds} rounds in turns, load average {load:.1f} at the end")
    for name, costs in found.items():
        wall, cpu = middle(costs)
        print(f"{name:<24} {wall:6.2f} s, {cpu:6.2f} s of CPU time")
    plain, audit = (middle(costs) for costs in found.values())
    print(
        f"ratio: {audit.wall / plain.wall:.2f} by the wall, {audit.cpu / plain.cpu:.2f} "
        f"of CPU time; the bar for the audit is {BAR_SECONDS:g} s on two quiet cores"
    )


if __name__ == "__main__":
    main()
