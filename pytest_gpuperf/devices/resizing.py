"""Storages that Python code resizes itself, outside of any operation."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def told_of_resizing(tell: Callable[[Any], None]) -> Iterator[None]:
    """Call *tell* with each storage that ``UntypedStorage.resize_`` has just resized.

    FSDP takes and lets go of gathered parameters so: no dispatch mode sees it.
    """
    kind: Any = torch.UntypedStorage
    resize = kind.resize_

    def resize_(storage: Any, nbytes: int) -> Any:
        result = resize(storage, nbytes)
        tell(storage)
        return result

    kind.resize_ = resize_
    try:
        yield
    finally:
        # it is its base's, unless somebody stood in for it before
        del kind.resize_
        if kind.resize_ is not resize:
            kind.resize_ = resize
