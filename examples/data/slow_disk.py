"""Images of MNIST's shape on a disk that takes a while."""

from __future__ import annotations

import time

import torch
from torch.utils.data import Dataset


class SlowDisk(Dataset):
    """Random digits; reading one waits for *read_ms* and keeps no core busy."""

    def __init__(self, count=640, read_ms=0.5):
        numbers = torch.Generator().manual_seed(0)
        self.images = torch.rand(count, 1, 28, 28, generator=numbers)
        self.labels = torch.randint(10, (count,), generator=numbers)
        self.read_ms = read_ms

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        time.sleep(self.read_ms / 1000)
        return self.images[index], self.labels[index]
