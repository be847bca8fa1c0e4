"""Storages that change or come without an operation: resized ones, and loaders' batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


# Storages that Python code resizes itself, outside of any operation.


@contextmanager
def watching_resizes(notify: Callable[[Any], None]) -> Iterator[None]:
    """Call *notify* with each storage that ``UntypedStorage.resize_`` has just resized.

    FSDP allocates and frees gathered parameters that way. No dispatch mode sees it.
    """
    kind: Any = torch.UntypedStorage
    resize = kind.resize_

    def resize_(storage: Any, nbytes: int) -> Any:
        result = resize(storage, nbytes)
        notify(storage)
        return result

    kind.resize_ = resize_
    try:
        yield
    finally:
        # The method is inherited from the base class, so deleting ours uncovers it. It
        # is set again only if somebody else had patched the class before us.
        del kind.resize_
        if kind.resize_ is not resize:
            kind.resize_ = resize


# Batches that workers of a loader have sent and nobody has asked for yet.


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
