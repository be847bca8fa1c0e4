"""Recurrent layers: cuDNN's keep memory of their own, which nothing here knows."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import Final

import torch

from .live_memory import MEMORY


NAMES: Final = ("gru", "lstm", "rnn_relu", "rnn_tanh")

REASON: Final = "cuDNN keeps memory of its own for it, which only a GPU can tell"


def recurrent_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Kernels that run each layer as before, and say that its memory is not judged."""
    for name in NAMES:
        for variant in ("input", "data"):
            overload = getattr(getattr(torch.ops.aten, name), variant)
            yield f"{name}.{variant}", _unjudged(f"aten::{name}", overload)


def _unjudged(op: str, overload: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if MEMORY.live is not None:
            MEMORY.live.leave_unjudged(op, REASON)
        return overload.decompose(*args, **kwargs)

    return kernel
