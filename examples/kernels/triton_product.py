"""A matrix product in blocks, as a Triton kernel; the width is a multiple of the side."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(left, right, result, width: tl.constexpr, side: tl.constexpr):
    rows = tl.program_id(0) * side + tl.arange(0, side)
    columns = tl.program_id(1) * side + tl.arange(0, side)
    total = tl.zeros((side, side), tl.float32)
    for start in range(0, width, side):
        middle = start + tl.arange(0, side)
        some = tl.load(left + rows[:, None] * width + middle[None, :])
        more = tl.load(right + middle[:, None] * width + columns[None, :])
        total += tl.dot(some, more, input_precision="ieee")
    tl.store(result + rows[:, None] * width + columns[None, :], total)
