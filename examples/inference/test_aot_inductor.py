"""A model in a program without Python: its package is made ahead, and C++ runs it.

The note did it with TorchScript, which is deprecated; AOTInductor builds what
``torch.export`` has captured.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from inductor import COMPILER, needs_compiler
from torch import nn


MAIN = Path(__file__).parent / "aot_main.cpp"


def program(folder):
    """Build the C++ program against the libraries of the torch that is installed."""
    from torch.utils import cpp_extension

    libraries = cpp_extension.library_paths()[0]
    headers = [f"-I{path}" for path in cpp_extension.include_paths()]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed"]
    names = ["-ltorch", "-ltorch_cpu", "-lc10"]
    command = [COMPILER, "-std=c++17", abi, *headers, MAIN, *link, *names]
    subprocess.run([*command, "-o", folder / "main"], check=True)  # noqa: S603, ours
    return folder / "main"


@needs_compiler
@pytest.mark.slow
@pytest.mark.claim("G14")
@pytest.mark.filterwarnings("ignore")  # of the scripts that cpp_extension still imports
def test_a_model_runs_where_no_python_is(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 3)).eval()
    model.requires_grad_(requires_grad=False)
    x = torch.linspace(-1, 1, 8).reshape(2, 4)

    package = torch._inductor.aoti_compile_and_package(  # noqa: SLF001, it has no other
        torch.export.export(model, (x,)), package_path=str(tmp_path / "model.pt2")
    )
    ran = subprocess.run(  # noqa: S603
        [program(tmp_path), package], check=True, capture_output=True, text=True
    )

    numbers = torch.tensor([float(line) for line in ran.stdout.split()]).reshape(2, 3)
    torch.testing.assert_close(numbers, model(x), rtol=1e-4, atol=1e-5)
