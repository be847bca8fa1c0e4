"""What Inductor, the compiler behind torch.compile, writes for a function.

Its source is written and not built, which takes a tenth of the time. It asks for a C++
compiler all the same.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import warnings

import pytest
import torch


COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")

needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="no C++ compiler: found neither g++ nor clang++"
)

LAUNCH = re.compile(
    r"^ +(?:\w+ = )?(?:cpp_fused|extern_kernels\.|torch\.ops\.)[\w.]*\(", re.MULTILINE
)
SCALAR_CODE_FROM_HERE = {
    "fx_graph_cache": False,  # or what was written before is taken, and none is written
    "compile_threads": 1,
    "cpp.vec_isa_ok": False,  # it tries vector instructions by building programs
}


def operations_of(function, *inputs):
    """Count what eager code launches for *function*: views are none."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        nodes = make_fx(function)(*inputs).graph.nodes
    return sum(_launches(node.target) for node in nodes if node.op == "call_function")


def _launches(target):
    is_view = getattr(target, "is_view", True)  # what is no operation launches nothing
    return not is_view and target is not torch.ops.aten._unsafe_view.default  # noqa: SLF001


def compiled(function):
    """Compile *function* when it is first called; built kernels are kept below /tmp."""
    _import_inductor()
    return torch.compile(function)


def source_of(function, *inputs, **settings):
    """Return the code that Inductor writes for *function*, which gives one tensor."""
    _import_inductor()
    from torch._inductor import config
    from torch._inductor.utils import get_code

    with config.patch({**SCALAR_CODE_FROM_HERE, **settings}), torch.no_grad():
        (source, *_) = get_code(torch.compile(function), *inputs)
    return source


def _import_inductor():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it still has a script, which is deprecated
        importlib.import_module("torch.utils.mkldnn")


def kernels_of(function, *inputs, **settings):
    """Count what that code launches."""
    return len(LAUNCH.findall(source_of(function, *inputs, **settings)))
