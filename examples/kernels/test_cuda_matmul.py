"""A matrix product as a CUDA kernel of one's own, in blocks of 16 by 16.

The same text runs on a GPU, and on a host through a few lines of C++ that stand for the
grid. The note allows an error of 0.0001, which float32 exceeds from a width of 512 on: it
grows with the sums, so it is compared with them here.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
from inductor import COMPILER, needs_compiler


HERE = Path(__file__).parent
POINTER = ctypes.c_void_p
CAN_COMPILE = (
    torch.cuda.is_available()
    and torch.version.cuda is not None
    and hasattr(torch.cuda, "_compile_kernel")
)


def on_host(folder):
    library = folder / "product.so"
    source = HERE / "matrix_product_on_host.cpp"
    command = [COMPILER, "-O1", "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True)  # noqa: S603, all of it is ours
    launch = ctypes.CDLL(str(library)).launch

    def product(left, right):
        result = torch.empty_like(left)
        places = [POINTER(matrix.data_ptr()) for matrix in (left, right, result)]
        launch(*places, left.shape[0])
        return result

    return product


def on_gpu():
    text = (HERE / "matrix_product.cu").read_text(encoding="utf-8")
    kernel = torch.cuda._compile_kernel(text, "product")  # noqa: SLF001, it has no other

    def product(left, right):
        result, width = torch.empty_like(left), left.shape[0]
        blocks = (width + 15) // 16
        arguments = (left, right, result, width)
        kernel(grid=(blocks, blocks, 1), block=(16, 16, 1), args=arguments)
        return result

    return product


def matrices(width, device):
    return [torch.rand(width, width, device=device) for _ in range(2)]


@needs_compiler
@pytest.mark.claim("C10")
@pytest.mark.parametrize("width", [100, 256])
def test_the_kernel_is_right_on_the_host(width, tmp_path):
    left, right = matrices(width, "cpu")

    torch.testing.assert_close(
        on_host(tmp_path)(left, right), left @ right, rtol=1e-5, atol=0
    )


@needs_compiler
def test_a_library_is_quicker_on_the_host(gpuperf, tmp_path):
    own, parts = on_host(tmp_path), matrices(128, "cpu")

    result = gpuperf.compare(lambda: own(*parts), lambda: torch.mm(*parts), speedup=5)

    assert result.time.verdict != "slower"


@pytest.mark.claim("C10")
@pytest.mark.skipif(not CAN_COMPILE, reason="needs a CUDA device, and torch's compiler")
@pytest.mark.parametrize("width", [100, 1024])
def test_the_kernel_is_right_on_a_gpu(width):
    left, right = matrices(width, "cuda")

    torch.testing.assert_close(on_gpu()(left, right), left @ right, rtol=1e-4, atol=0)
