"""A matrix product in blocks as a Triton kernel; its interpreter runs it without a GPU."""

from __future__ import annotations

import os

import pytest
import torch


if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

SIDE = 16


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


@pytest.mark.claim("C10")
def test_a_triton_kernel_gives_the_same_product():
    width, device = 64, "cuda" if torch.cuda.is_available() else "cpu"
    left, right = (torch.rand(width, width, device=device) for _ in range(2))
    result = torch.empty_like(left)

    product[(width // SIDE, width // SIDE)](left, right, result, width, SIDE)

    torch.testing.assert_close(result, left @ right, rtol=1e-5, atol=0)
