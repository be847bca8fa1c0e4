"""A small GPT on characters, and epochs with the savings of the ladder of speed."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

from models.gpt2 import Gpt, Shape


MINI = Shape(layers=6, heads=6, width=192, tokens=64, batch=64)
"""About what was published, for a GPU."""

TINY = Shape(layers=2, heads=3, width=48, tokens=32, batch=64)
"""For a CPU: launching its operations is most of the work."""

WIDE = Shape(layers=1, heads=2, width=256, tokens=32, batch=16)
"""For a CPU as well: multiplying is most of the work."""

LADDER = (
    {"batch": 4},
    {"batch": 64},
    {"batch": 64, "workers": 2},
    {"batch": 64, "workers": 2, "overlapped": True},
    {"batch": 64, "workers": 2, "overlapped": True, "compiled": True},
    {
        "batch": 64,
        "workers": 2,
        "overlapped": True,
        "compiled": True,
        "mixed": True,
    },
)
"""What ``Epoch`` does on each rung; the last one, DDP, is for two GPUs."""


class Characters(Dataset):
    """Windows of a text that nobody wrote."""

    def __init__(self, shape, samples):
        self.tokens, self.samples = shape.tokens, samples
        letters = torch.Generator().manual_seed(0)
        length = samples + shape.tokens
        self.text = torch.randint(shape.vocabulary, (length,), generator=letters)

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        window = self.text[index : index + self.tokens + 1]
        return window[:-1], window[1:]


class Epoch:
    """A model, its optimizer and a loader; called, it goes through all samples once."""

    def __init__(  # noqa: PLR0913, the savings of the ladder
        self,
        shape,
        device,
        *,
        samples=64,
        dataset=None,
        batch=64,
        workers=0,
        overlapped=False,
        compiled=False,
        mixed=False,
    ):
        torch.manual_seed(0)
        self.device, self.overlapped, self.mixed = device, overlapped, mixed
        self.model = Gpt(shape, checkpointing=False).to(device)
        self.run = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.loader = DataLoader(
            Characters(shape, samples) if dataset is None else dataset,
            batch_size=batch,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=overlapped and device == "cuda",
        )

    def __call__(self):
        for batch in self.loader:
            tokens, targets = (
                part.to(self.device, non_blocking=self.overlapped) for part in batch
            )
            with torch.autocast(self.device, torch.bfloat16, enabled=self.mixed):
                loss = self.run(tokens, targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
