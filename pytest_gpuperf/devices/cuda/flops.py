"""Floating point operations of a step on a GPU, and how long they take at its peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

import torch
from torch.utils.flop_counter import flop_registry

from ..base import AtPeak
from ..base import Step
from ..dispatch import Watching
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


class _Counting(Watching):
    def __init__(self, tf32: Mapping[str, bool]) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()
        self._tf32 = tf32

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


# Dense peak rates of GPUs, by what computes, and how long operations take at them.

HOPPER_SXM: Final = {"bf16": 989.5, "fp16": 989.5, "tf32": 494.5, "fp32": 67.0}
AMPERE_A100: Final = {"bf16": 312.0, "fp16": 312.0, "tf32": 156.0, "fp32": 19.5}

PEAK_TFLOPS: Final[Mapping[str, Mapping[str, float]]] = {
    "NVIDIA H200": HOPPER_SXM,
    "NVIDIA H100 80GB HBM3": HOPPER_SXM,
    "NVIDIA H100 PCIe": {"bf16": 756.5, "fp16": 756.5, "tf32": 378.0, "fp32": 51.0},
    "NVIDIA A100-SXM4-40GB": AMPERE_A100,
    "NVIDIA A100-SXM4-80GB": AMPERE_A100,
    "NVIDIA A100-PCIE-40GB": AMPERE_A100,
    "NVIDIA A100 80GB PCIe": AMPERE_A100,
    "NVIDIA A40": {"bf16": 149.7, "fp16": 149.7, "tf32": 74.8, "fp32": 37.4},
    "NVIDIA A30": {"bf16": 165.0, "fp16": 165.0, "tf32": 82.0, "fp32": 10.3},
    "NVIDIA A10": {"bf16": 125.0, "fp16": 125.0, "tf32": 62.5, "fp32": 31.2},
    "NVIDIA L40S": {"bf16": 362.05, "fp16": 362.05, "tf32": 183.0, "fp32": 91.6},
    "NVIDIA L4": {"bf16": 121.0, "fp16": 121.0, "tf32": 60.0, "fp32": 30.3},
    "Tesla V100-SXM2-16GB": {"fp16": 125.0, "fp32": 15.7},
    "Tesla V100-SXM2-32GB": {"fp16": 125.0, "fp32": 15.7},
    "Tesla V100-PCIE-16GB": {"fp16": 112.0, "fp32": 14.0},
    "Tesla V100-PCIE-32GB": {"fp16": 112.0, "fp32": 14.0},
    "Tesla T4": {"fp16": 65.0, "fp32": 8.1},
}
"""TFLOP/s of dense products, by the name that the driver gives a GPU and by precision.

From NVIDIA's data sheets of the H200, H100, A100, A40, A30, A10, L40S, L4, V100 and T4.
Rates that a sheet gives with sparsity are halved. They are those of tensor cores, but
for ``fp32``, and of the whole GPU, not of a MIG instance.
"""


def at_peak(flops: Mapping[str, int], name: str, given: Mapping[str, float]) -> AtPeak:
    """Return how long *flops*, by precision, take at the peak of the GPU of that *name*.

    Peaks in TFLOP/s that are *given* come before those of the table.
    """
    if not any(flops.values()):
        return None, "torch's formulas count no operation of this step"
    peaks = {**PEAK_TFLOPS.get(name, {}), **given}
    unknown = sorted(precision for precision in flops if precision not in peaks)
    if unknown:
        key = ", ".join(f"{precision}=..." for precision in unknown)
        why = (
            f"no peak of {name} in {' and '.join(unknown)} is known: set the ini key "
            f"gpuperf_peak_tflops = {key}, in dense TFLOP/s"
        )
        return None, why
    seconds = {p: count / (peaks[p] * 1e12) for p, count in flops.items()}
    parts = (
        f"{count / 1e9:.4g} GFLOP in {p} at {peaks[p]:g} TFLOP/s"
        for p, count in flops.items()
    )
    return 1e3 * sum(seconds.values()), " and ".join(parts)
