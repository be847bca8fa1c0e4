"""The quantities of a step's code: how it is compiled, launched, and whether it slows down."""

from __future__ import annotations

from typing import Final

from .quantity import Kind
from .quantity import Metric
from .quantity import Unit


GRAPH_BREAKS: Final = Metric(
    name="graph_breaks",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="lines at which torch.compile splits the code that a step runs, or gives it up",
    budget="graph_breaks",
    can_be_zero=True,
)
RECOMPILES: Final = Metric(
    name="recompiles",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="times that code a step runs had to be compiled once more",
    budget="recompiles",
    can_be_zero=True,
)
LAUNCHES: Final = Metric(
    name="launches",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="calls of a step that launch kernels, or a whole CUDA graph",
    budget="launches",
)
KERNELS: Final = Metric(
    name="kernels",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="kernels that these launches run on the GPU",
)
OPS: Final = Metric(
    name="ops",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="operations of a step that would launch work (pretend device)",
    budget="launches",
)
FLOPS: Final = Metric(
    name="flops",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="floating point operations of a step by torch.utils.flop_counter's formulas (pretend device)",
    budget="flops",
)
SLOPE: Final = Metric(
    name="slope",
    unit=Unit.RATIO,
    kind=Kind.NOISY,
    summary="time of a step, divided by that of a step 100 steps earlier",
    budget="slope_pct",
)

COMPILED: Final[tuple[Metric, ...]] = (GRAPH_BREAKS, RECOMPILES)
"""What is read off the compiler."""

LAUNCHED: Final[tuple[Metric, ...]] = (LAUNCHES, KERNELS)
"""What a trace of a GPU shows."""
