"""Floating point operations of a step on a GPU, by the precision that computes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..base import Step
from ..dispatch import eager
from ..dispatch import redispatch


NAMES: Final = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
}

CONVOLUTION: Final = "convolution"


def flops_of_step(
    step: Step, arguments: Sequence[object], *, tf32: Mapping[str, bool]
) -> dict[str, int]:
    """Run one step as eager code and count its operations by precision.

    They are those of ``torch.utils.flop_counter``, which counts products, convolutions
    and attention, a multiplication and an addition as two; what is computed twice, as
    by checkpointing, counts twice, and an operation without a formula not at all.
    *tf32* says of ``"matmul"`` and ``"convolution"`` whether float32 is computed in it.
    Raises whatever the step raises.
    """
    counting = _Counting(tf32)
    with eager(), counting:
        step(*arguments)
    return dict(counting.flops)


class _Counting(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, tf32: Mapping[str, bool]) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()
        self._tf32 = tf32

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading dynamo, for seconds, to keep this mode out of it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        result = redispatch(self, func, args, kwargs or {})
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            count = int(formula(*args, **(kwargs or {}), out_val=result))
            self.flops[self._precision(func, args)] += count
        return result

    def _precision(self, func: Any, args: Sequence[Any]) -> str:
        dtype = next((t.dtype for t in _tensors(args) if t.is_floating_point()), None)
        kind = CONVOLUTION if CONVOLUTION in str(func) else "matmul"
        if dtype is torch.float32 and self._tf32[kind]:
            return "tf32"
        return NAMES.get(dtype, str(dtype).removeprefix("torch."))


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
