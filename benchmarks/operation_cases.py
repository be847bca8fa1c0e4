"""The operations that torch tests itself with, and their samples on either device."""

from __future__ import annotations

import random
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from typing import Final
from unittest.mock import patch

import torch
from operation_step import OperationCall
from operation_step import tensors_of
from torch.utils import _pytree


MOST_SAMPLES: Final = 12
"""Of an operation's, spread evenly: there may be hundreds."""

DTYPES: Final = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float16,
)

ON_HOST: Final = frozenset({"tensor_split"})
"""Operations that want their tensors on the host, but for the first."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of the database, in the first dtype that both devices have."""

    info: Any
    dtype: torch.dtype | None

    @property
    def name(self) -> str:
        variant = self.info.variant_test_name
        return f"{self.info.name}.{variant}" if variant else str(self.info.name)

    @property
    def is_differentiated(self) -> bool:
        types = self.info.supported_backward_dtypes("cpu")
        return bool(self.info.supports_autograd and self.dtype in types)


@cache
def operations() -> Mapping[str, Operation]:
    """Load the database; CUDA is left as it is, so that a fork may begin to use it."""
    with patch("torch.cuda.is_available", return_value=False):
        from torch.testing._internal.common_methods_invocations import op_db
    found = [Operation(info, _dtype_of(info)) for info in op_db]
    return {operation.name: operation for operation in found}


def _dtype_of(info: Any) -> torch.dtype | None:
    on_cuda = {*(info.dtypesIfCUDA or info.dtypes)}
    both = on_cuda & {*info.dtypes}
    return next((dtype for dtype in DTYPES if dtype in (both or on_cuda)), None)


def samples_of(operation: Operation) -> Sequence[Any]:
    """Make samples on the host, where they are the same for each kind of device."""
    torch.manual_seed(0)
    random.seed(0)
    made = operation.info.sample_inputs(
        "cpu", operation.dtype, requires_grad=operation.is_differentiated
    )
    samples = list(made)
    return samples[:: -(-len(samples) // MOST_SAMPLES) or 1]


def on_device(operation: Operation, sample: Any) -> OperationCall:
    """Return the call that *sample* means, with its tensors on the device."""
    more = (tuple(sample.args), dict(sample.kwargs))
    first = _moved(sample.input)
    arguments, named = more if operation.info.name in ON_HOST else _moved(more)
    function = operation.info.op
    if "device" in named:
        # Looked up now: the simulated GPU replaces the functions that make tensors.
        function = getattr(torch, operation.info.name, function)
        named["device"] = "cuda"
    given = tensors_of((first, arguments, named))
    return OperationCall(
        operation=function,
        arguments=(first, *arguments),
        named=named,
        differentiable=sample.output_process_fn_grad or (lambda out: out),
        leaves=[tensor for tensor in given if tensor.requires_grad],
    )


def _moved(tree: Any) -> Any:
    def move(tensor: Any) -> Any:
        return tensor.detach().to("cuda").requires_grad_(tensor.requires_grad)

    return _pytree.tree_map_only(torch.Tensor, move, tree)
