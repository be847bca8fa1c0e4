"""Weights of recurrent layers in one piece of memory, as cuDNN reads them (cudnn/RNN.cpp).

``flatten_parameters`` puts them there when a layer comes to the device. Where they are not
there any more, as in a copy of the layer, each call makes the piece anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

from .patches import Patch, patched, when_loaded


def flat_layout(weights: Sequence[Any], per_layer: int) -> tuple[list[int], int]:
    """Return how many numbers lie before each weight, and how many there are in all.

    All matrices come layer by layer, and behind them the biases, also where there are none.
    There are *per_layer* weights in each direction of a layer.
    """
    places, total = [0] * len(weights), 0
    biases = [n for n, weight in enumerate(weights) if weight.dim() == 1]
    matrices = [n for n, weight in enumerate(weights) if weight.dim() > 1]
    for place in (*matrices, *biases):
        places[place] = total
        total += weights[place].numel()
    if not biases:
        total += sum(2 * weight.size(0) for weight in weights[::per_layer])
    return places, total


def views_of(buffer: Any, places: Sequence[int], weights: Sequence[Any]) -> list[Any]:
    """Return the parts of *buffer*, as tensors of their own for autograd."""
    storage = buffer.untyped_storage()
    return [
        buffer.new_empty(0).set_(storage, place, weight.shape, _dense(weight.shape))
        for place, weight in zip(places, weights, strict=True)
    ]


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[1:], 1)  # of one or two dimensions


def copied(
    weights: Sequence[Any], per_layer: int, dtype: torch.dtype
) -> tuple[Any, list[Any]]:
    """Return a new piece with a copy of *weights*, and its parts."""
    places, total = flat_layout(weights, per_layer)
    buffer = torch.zeros(total, dtype=dtype, device=weights[0].device)
    parts = views_of(buffer, places, weights)
    for part, weight in zip(parts, weights, strict=True):
        part.copy_(weight)
    return buffer, parts


def flatten(weights: Sequence[Any], per_layer: int, *_: object) -> Any:
    """``aten::_cudnn_rnn_flatten_weight``: put *weights* into one piece."""
    __tracebackhide__ = True
    buffer, parts = copied(weights, per_layer, weights[0].dtype)
    for weight, part in zip(weights, parts, strict=True):
        weight.set_(part)
    return buffer


def buffer_of(weights: Sequence[Any], per_layer: int) -> Any:
    """Return the piece in which *weights* lie, ``None`` if they do not (``try_get_weight_buf``)."""
    places, total = flat_layout(weights, per_layer)
    insides = [weight.inside for weight in weights]
    first = insides[0].untyped_storage()
    for place, inside in zip(places, insides, strict=True):
        storage = inside.untyped_storage()._cdata  # noqa: SLF001, as in ``memory``
        if storage != first._cdata or inside.storage_offset() != place:  # noqa: SLF001
            return None
    if first.nbytes() < total * insides[0].element_size():
        return None
    storage = weights[0].untyped_storage()
    return weights[0].new_empty(0).set_(storage, 0, (total,), (1,))


FLATTENING: Final[Mapping[str, Callable[..., Any]]] = {
    "_cudnn_rnn_flatten_weight": flatten,
}
"""Kernels for the GPU tensors' device."""


def flattening_patches() -> Iterator[Patch]:
    """Let ``flatten_parameters`` take GPU tensors as it takes tensors of CUDA."""
    yield Patch(torch.backends.cudnn, "is_acceptable", is_acceptable)
    yield Patch(torch, "_use_cudnn_rnn_flatten_weight", lambda: True)


@contextmanager
def cudnn_modes() -> Iterator[None]:
    """Let ``flatten_parameters`` know cuDNN's numbers of layers, which a build for CPUs lacks.

    In torch 2.9 and 2.10 ``torch.backends.cudnn.rnn`` holds settings until a layer imports
    the module of that name, so the module is not imported before.
    """
    with ExitStack() as undo:

        def number_layers(module: Any) -> None:
            patch = Patch(module, "get_cudnn_mode", cudnn_mode)
            undo.enter_context(patched([patch]))

        undo.enter_context(when_loaded("torch.backends.cudnn.rnn", number_layers))
        yield


MODES: Final = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""Layers by cuDNN's number for them."""


def cudnn_mode(name: str) -> int:
    """Return the number of the layer that ``torch.nn`` calls *name*."""
    return MODES.index(name.lower())


def is_acceptable(tensor: Any) -> bool:
    """``torch.backends.cudnn.is_acceptable``."""
    return (
        tensor.is_cuda
        and torch._C._get_cudnn_enabled()  # noqa: SLF001, where torch.backends keeps it
        and tensor.dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES
    )
