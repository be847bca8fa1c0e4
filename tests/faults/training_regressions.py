"""A training test, the fourteen ways to make it worse, and changes that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


CLEAN: Final = """\
import pytest_gpuperf
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH = 64
WIDTH = 64


def pinned(tensor):
    return tensor.pin_memory() if DEVICE == "cuda" else tensor


def compiled(module):
    return module


def closeness(features):
    return (features @ features.T).mean()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        hidden = F.gelu(self.up(x))
        return x + self.dropout(self.down(hidden))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(32, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        hidden = self.stem(x)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


class Trainer:
    def __init__(self):
        self.model = compiled(Net().to(DEVICE))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.scaler = torch.amp.GradScaler(DEVICE)
        self.images = pinned(torch.randn(BATCH, 32))
        self.labels = pinned(torch.randint(10, (BATCH,)))
        self.losses = []
        self.steps = 0

    def step(self):
        self.steps += 1
        images = self.images.to(DEVICE, non_blocking=True)
        labels = self.labels.to(DEVICE, non_blocking=True)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = self.model(images)
            loss = F.cross_entropy(logits, labels) + 0.1 * closeness(logits)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.evaluate(images)

    def evaluate(self, images):
        self.model.eval()
        with torch.no_grad():
            self.model(images)
        self.model.train()


def test_step(gpuperf):
    gpuperf(Trainer().step)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of the source: ``old`` text becomes ``new``.

    ``line`` is to be named first, ``metric`` is one that fails on the simulated device.
    """

    old: str
    new: str
    line: str = ""
    metric: str = ""
    more: tuple[tuple[str, str], ...] = ()

    def of(self, source: str) -> str:
        """Return *source* with the change made."""
        for old, new in ((self.old, self.new), *self.more):
            assert old in source, old
            source = source.replace(old, new)
        return source


REGRESSIONS: Final = {
    "item": Edit(
        metric="syncs",
        old="        self.scaler.update()\n",
        new="        self.scaler.update()\n        self.last = loss.item()\n",
        line="self.last = loss.item()",
    ),
    "losses_with_graphs": Edit(
        metric="retained_graphs",
        old="        self.scaler.update()\n",
        new="        self.scaler.update()\n        self.losses.append(loss)\n",
        line="loss = F.cross_entropy(logits, labels) + 0.1 * closeness(logits)",
    ),
    "unpinned_copy": Edit(
        metric="pageable_copies",
        old="self.images = pinned(torch.randn(BATCH, 32))",
        new="self.images = torch.randn(BATCH, 32)",
        line="images = self.images.to(DEVICE, non_blocking=True)",
    ),
    "fp32_upcast": Edit(
        metric="launches",
        old="hidden = F.gelu(self.up(x))",
        new="hidden = F.gelu(self.up(x).float())",
        line="hidden = F.gelu(self.up(x).float())",
    ),
    "doubled_batch": Edit(
        old="BATCH = 64",
        new="BATCH = 128",
        metric="flops",
    ),
    "dropout_in_evaluation": Edit(
        metric="launches",
        old="        self.model.eval()\n",
        new="",
        line="return x + self.dropout(self.down(hidden))",
    ),
    "quadratic_loop": Edit(
        metric="launches",
        old="return (features @ features.T).mean()",
        new="return sum(a @ b for a in features for b in features) / BATCH**2",
        line="return sum(a @ b for a in features for b in features) / BATCH**2",
    ),
    "extra_forward": Edit(
        metric="flops",
        old="            logits = self.model(images)\n",
        new="            self.model(images)\n            logits = self.model(images)\n",
    ),
    "retain_graph": Edit(
        metric="peak_allocated_bytes",
        old="self.scaler.scale(loss).backward()",
        new="self.scaler.scale(loss).backward(retain_graph=True)",
    ),
    "optimizer_each_step": Edit(
        metric="launches",
        old="        self.optimizer.zero_grad(set_to_none=True)\n",
        new=(
            "        self.optimizer = torch.optim.AdamW(self.model.parameters())\n"
            "        self.optimizer.zero_grad(set_to_none=True)\n"
        ),
        line="self.scaler.step(self.optimizer)",
    ),
    "missing_no_grad": Edit(
        metric="peak_allocated_bytes",
        old="        with torch.no_grad():\n            self.model(images)\n",
        new="        self.model(images)\n",
    ),
    "print_of_a_tensor": Edit(
        metric="syncs",
        old="        self.scaler.update()\n",
        new="        self.scaler.update()\n        print(loss)\n",
        line="print(loss)",
    ),
    "constant_from_the_host": Edit(
        metric="pageable_copies",
        old="            logits = self.model(images)\n",
        new=(
            "            logits = self.model(images)\n"
            "            logits = logits * torch.ones(10).to(DEVICE)\n"
        ),
        line="logits = logits * torch.ones(10).to(DEVICE)",
    ),
    "shape_that_recompiles": Edit(  # compiled code runs as eager code on simulated
        old="        images = self.images.to(DEVICE, non_blocking=True)\n"
        "        labels = self.labels.to(DEVICE, non_blocking=True)\n",
        new="        images = self.images[self.steps:].to(DEVICE, non_blocking=True)\n"
        "        labels = self.labels[self.steps:].to(DEVICE, non_blocking=True)\n",
    ),
}

HARMLESS: Final = {
    "unchanged": Edit(old="", new=""),
    "names_lines_and_comments": Edit(
        old="Block",
        new="Layer",
        more=(
            ("Trainer", "Loop"),
            ("hidden", "features"),
            ("evaluate", "validate"),
            ("BATCH = 64\nWIDTH = 64\n", "\n\n\nWIDTH = 64\nBATCH = 64\n"),
            (
                "        self.steps += 1\n",
                "        # count it\n        self.steps += 1\n",
            ),
            ("def test_step", "def test_other():\n    assert BATCH\n\n\ndef test_step"),
        ),
    ),
    "detached_losses": Edit(
        old="        self.scaler.update()\n",
        new="        self.scaler.update()\n        self.losses.append(loss.detach())\n",
    ),
}
