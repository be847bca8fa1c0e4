"""Which samples a loader asks for before anybody has asked for their batches."""

from __future__ import annotations

from torch.utils.data import DataLoader


def asked_for_first_batch(dataset, batch_size, **settings):
    """Return how many samples are asked for until the first batch has been taken."""
    asked = []
    order = (asked.append(index) or index for index in range(len(dataset)))

    next(iter(DataLoader(dataset, batch_size, sampler=order, **settings)))

    return len(asked)
