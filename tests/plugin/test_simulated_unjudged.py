"""Code that only a GPU can run or judge is named and skipped, and the run goes on."""

from __future__ import annotations

import json
import re

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

ON = ("--gpuperf", "--gpuperf-device=simulated", "-rs")

CLEAN = """
@gpuperf.budget(syncs=0)
def test_clean(gpuperf):
    x = ones()
    gpuperf(lambda: x + 1)
"""

SETTING = """
import sys
import torch
import pytest_gpuperf

def ones(*shape):
    return torch.ones(shape, device="cuda")
"""

EXTENSIONS = """
@torch.library.custom_op("skip_test::bare", mutates_args=(), device_types="cuda")
def bare(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError

@torch.library.custom_op("skip_test::written", mutates_args=("x",), device_types="cuda")
def written(x: torch.Tensor) -> None:
    raise NotImplementedError

library = torch.library.Library("skip_test", "FRAGMENT")
library.define("low(Tensor x) -> Tensor")

@torch.library.impl(library, "low", "CUDA")
def low(x):
    raise NotImplementedError

@gpuperf.budget(syncs=0)
def test_bare(gpuperf):
    x = ones(3)
    assert gpuperf(lambda: bare(x).sum()).item() == 3

@gpuperf.budget(syncs=0)
def test_written(gpuperf):
    x = ones(3)
    gpuperf(lambda: written(x))

@pytest.fixture
def made():
    return bare(ones(3))

@gpuperf.budget(syncs=0)
def test_fixture(gpuperf, made):
    gpuperf(lambda: made + 1)

@gpuperf.budget(syncs=0)
def test_low(gpuperf):
    x = torch.ops.skip_test.low(ones(3))
    gpuperf(lambda: x + 1)
"""

TRITON = """
class JITFunction:
    def __init__(self, function):
        self.__name__ = function.__name__

    def __getitem__(self, grid):
        return lambda *args: self.run(*args, grid=grid, warmup=False)

    def run(self, *args, grid, warmup):
        raise RuntimeError("0 active drivers ([]). There should only be one.")

def jit(function):
    return JITFunction(function)
"""

KERNEL = """
@gpuperf.budget(syncs=0)
def test_kernel(gpuperf):
    sys.path.insert(0, "late")
    from triton.runtime.jit import jit
    def scale(x, n): ...
    scale = jit(scale)
    x = ones(3)
    gpuperf(lambda: scale[(1,)](x, 3))
"""

MODES = """
@gpuperf.budget(syncs=0)
def test_graph(gpuperf):
    x = ones(3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    gpuperf(lambda: graph.replay())

@gpuperf.budget(syncs=0)
def test_graphed(gpuperf):
    x = ones(2, 3)
    layer = torch.cuda.make_graphed_callables(torch.nn.Linear(3, 3).cuda(), (x,))
    gpuperf(lambda: layer(x).sum().backward())

@gpuperf.budget(syncs=0)
def test_parallel(gpuperf):
    layer = torch.nn.DataParallel(torch.nn.Linear(3, 3).cuda())
    x = ones(2, 3)
    gpuperf(lambda: layer(x).sum().backward())

@gpuperf.budget(syncs=0)
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_rows(gpuperf):
    rows = torch.eye(3).to_sparse_csr().cuda()
    x = ones(3, 2)
    gpuperf(lambda: rows @ x)

@gpuperf.budget(syncs=0)
@pytest.mark.filterwarnings("ignore")
def test_nested(gpuperf):
    x = torch.nested.nested_tensor([ones(2, 3), ones(4, 3)])
    gpuperf(lambda: x * 2)
"""


NEITHER = (
    "it has neither a CPU kernel nor a meta kernel to run in its place; torch.library "
    "can register one [GP308]"
)
GRAPH = "a CUDA graph replays work that no operation shows"
KERNELS = "only a GPU runs it; its outputs are left as they were"
LAYOUT = "no rules are known for this layout"
REASONS = [
    f"nested tensors (test_it.py): {LAYOUT}",
    *[f"skip_test::bare: {NEITHER}"] * 2,
    f"skip_test::low: {NEITHER}",
    "skip_test::written (test_it.py): there is no CPU kernel to run in its place",
    *[f"torch.cuda.CUDAGraph.replay (test_it.py): {GRAPH}"] * 2,
    "torch.nn.DataParallel (test_it.py): the copies to and from its replicas are not made",
    f"torch.sparse_csr (test_it.py): {LAYOUT}",
    f"triton kernel scale (late/triton/runtime/jit.py): {KERNELS}",
]


def test_code_that_only_a_gpu_can_judge_is_named_with_its_reason(
    project: ScriptedProject,
) -> None:
    """Triton is imported late, in a test."""
    runtime = project.path / "late" / "triton" / "runtime"
    runtime.mkdir(parents=True)
    (runtime.parent / "__init__.py").touch()
    (runtime / "__init__.py").touch()
    (runtime / "jit.py").write_text(TRITON)
    project.file(SETTING + EXTENSIONS + MODES + KERNEL + CLEAN)

    result = project.pytester.runpytest_inprocess(*ON)

    result.assert_outcomes(passed=1, skipped=len(REASONS))
    counted = (
        f"gpuperf: 1 passed, {len(REASONS)} not checked on simulated GPU; 9 metrics "
    )
    assert f"{counted}without baseline" in result.outlines
    judge = "only a GPU can judge "
    lines = [line for line in result.outlines if line.startswith("SKIPPED")]
    said = [line.partition(judge)[2] for line in lines]
    assert sorted(re.sub(r":\d+\)", ")", reason) for reason in said) == sorted(REASONS)


SKIPS_ITSELF = """
import pytest
import torch
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
"""


PLAIN = "def test_plain(): pass\n"


@pytest.mark.parametrize(
    ("source", "arguments", "is_named"),
    [
        (SETTING + CLEAN, (), True),
        (SETTING + CLEAN, ("-p", "xdist.plugin", "-n1"), True),
        (PLAIN, (), True),  # where nothing was measured, too
        (PLAIN, ("--gpuperf-device=cpu",), False),
    ],
)
def test_files_that_skipped_themselves_before_there_was_a_simulated_gpu_are_named(
    project: ScriptedProject, source: str, arguments: tuple[str, ...], *, is_named: bool
) -> None:
    if "-n1" in arguments:
        pytest.importorskip("xdist")
    project.file(source)
    for name in ("one", "two"):
        project.pytester.makepyfile(**{f"test_{name}": SKIPS_ITSELF})

    result = project.pytester.runpytest_subprocess(*ON, *arguments)

    result.assert_outcomes(passed=1, skipped=2)
    named = (
        "gpuperf: 2 files skipped themselves while collected, and no test there was "
        "looked at: test_one.py, test_two.py; where a GPU was looked for, let "
        "pytest.mark.skipif ask, which sees the simulated one"
    )
    assert (named in result.outlines) is is_named
    results = json.loads((project.path / ".gpuperf/results.json").read_text("utf-8"))
    assert results["notes"] == ([] if source == PLAIN else [named])
