"""Batches that workers of a loader have sent and nobody has asked for yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def loading_kinds() -> tuple[type, ...]:
    """Return the iterator class of a ``DataLoader`` with workers, if it is loaded."""
    torch_loader = sys.modules.get("torch.utils.data.dataloader")
    kind = getattr(torch_loader, "_MultiProcessingDataLoaderIter", None)
    return () if kind is None else (kind,)


def waiting_in(loading: Any) -> Iterator[Any]:
    """Tensors of batches that came before their turn, as torch keeps them.

    How many there are depends on how fast the workers are, not on the step.
    """
    from torch.utils._pytree import tree_leaves

    # Private, as no public name shows these batches. An entry is the worker's number
    # and, once it came, the batch.
    for entry in list(getattr(loading, "_task_info", {}).values()):
        yield from tree_leaves(entry[1:])
