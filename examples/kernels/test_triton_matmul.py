"""A matrix product in blocks as a Triton kernel; its interpreter runs it without a GPU."""

from __future__ import annotations

import os

import pytest
import torch


if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

WIDTH, SIDE = 64, 16


@pytest.mark.claim("C10")
def test_a_triton_kernel_gives_the_same_product():
    pytest.importorskip("triton")
    from triton_product import product

    device = "cuda" if torch.cuda.is_available() else "cpu"
    left, right = (torch.rand(WIDTH, WIDTH, device=device) for _ in range(2))
    result = torch.empty_like(left)

    product[(WIDTH // SIDE, WIDTH // SIDE)](left, right, result, WIDTH, SIDE)

    torch.testing.assert_close(result, left @ right, rtol=1e-5, atol=0)
