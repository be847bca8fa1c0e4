"""Batches that workers of a loader have sent and nobody has asked for yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def loading_kinds() -> tuple[type, ...]:
    """Return the class of what iterates over a ``DataLoader`` with workers, if loaded."""
    torch_loader = sys.modules.get("torch.utils.data.dataloader")
    kind = getattr(torch_loader, "_MultiProcessingDataLoaderIter", None)
    return () if kind is None else (kind,)


def waiting_in(loading: Any) -> Iterator[Any]:
    """Tensors of batches that came before their turn, as torch keeps them.

    How many there are is up to the workers, and tells nothing of the step.
    """
    from torch.utils._pytree import tree_leaves

    for entry in list(getattr(loading, "_task_info", {}).values()):
        yield from tree_leaves(entry[1:])
