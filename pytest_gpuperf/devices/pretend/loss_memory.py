"""Memory that a loss takes on CUDA beside its result (Loss.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Final

from .operation import NO_TEMPORARIES
from .operation import OpCall
from .operation import Rule
from .operation import Temporaries
from .operation import nbytes_of
from .temporaries import reduction_buffers


def _elementwise_loss(call: OpCall) -> Temporaries:
    """Of a loss that is computed in full before it is reduced."""
    tensor = call["self"]
    if call["reduction"] == 0:
        return NO_TEMPORARIES
    buffers = reduction_buffers(tensor, None, 4)
    return Temporaries(before=[nbytes_of(tensor)], phases=[buffers])


def _loss_of_logits(call: OpCall) -> Temporaries:
    """One less the target, in which the loss comes to be, and logarithms."""
    tensor, weight = call["self"], call["pos_weight"]
    size = nbytes_of(tensor)
    before: list[int | Sequence[int]] = []
    if weight is not None:
        before += [(nbytes_of(weight),), size]
    if call["reduction"] == 0:
        return Temporaries(before, [[size]])
    buffers = reduction_buffers(tensor, None, 4)
    return Temporaries([*before, size, (size,)], [buffers])


def _loss_in_its_output(call: OpCall) -> Temporaries:
    # The output is made for all elements, and another for what is to be reduced.
    tensor = call["self"]
    if call["reduction"] == 0:
        return NO_TEMPORARIES
    buffers = reduction_buffers(tensor, None, 4)
    return Temporaries(phases=[[nbytes_of(tensor), *buffers]])


LOSS_MEMORY: Final[Mapping[str, Rule]] = {
    "binary_cross_entropy": _elementwise_loss,
    "binary_cross_entropy_with_logits": _loss_of_logits,
    "huber_loss": _elementwise_loss,
    "mse_loss": _loss_in_its_output,
    "smooth_l1_loss": _loss_in_its_output,
}
"""Which operation takes what."""
