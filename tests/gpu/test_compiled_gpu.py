"""Steps that torch.compile has compiled with Inductor, and kernels written in Triton."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.measurement import Measurement


triton = pytest.importorskip("triton", reason="torch compiles for CUDA with Triton")

from triton import language as tl


pytestmark = [
    pytest.mark.gpu,
    # What compiles imports what torch itself calls deprecated, and advises.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]

MIB = 2**20

SECONDS = 1
"""Of measuring: on the virtual clock that is some 20,000 of these steps."""

SLEEP_CYCLES = 20_000_000
"""Of a kernel before a step that has longer, so that it has few steps."""

Event = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def _own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile anew, and in this process: no other process's work is taken for it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        with config.patch(compile_threads=1):
            yield


def of_category(trace: Sequence[Event], category: str) -> list[Event]:
    return [event for event in trace if event.get("cat") == category]


def profiled(step: Callable[[], object]) -> list[Event]:
    for _ in range(3):  # it compiles, and CUDA graphs are captured
        step()
    return list(CudaDevice.open().profile(step, [()]))


def measured(step: Callable[[], object], seconds: float = SECONDS) -> Measurement:
    for _ in range(3):
        step()
    device = CudaDevice.open()
    return measure(
        device, Subject(step=step), MeasurePlan(test="t", seconds=seconds)
    ).measurement


def training(mode: str | None = None) -> Callable[[], None]:
    """Make a training step of which forward, backward and optimizer are compiled."""
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    rows = torch.randn(256, 64, device="cuda")
    forward = torch.compile(model, mode=mode)
    update = torch.compile(optimizer.step)

    def step() -> None:
        forward(rows).square().mean().backward()
        update()
        optimizer.zero_grad()

    return step


@pytest.fixture(scope="module")
def trained() -> Callable[[], None]:
    return training()


def test_kernels_of_a_compiled_step_are_launches_with_their_names(
    trained: Callable[[], None],
) -> None:
    trace = profiled(trained)

    of_triton = [e for e in of_category(trace, "kernel") if "triton_" in e["name"]]
    named = " ".join(str(event["name"]) for event in of_triton)
    for part in ("native_layer_norm", "gelu_backward", "triton_for_fused"):
        assert part in named
    launches = {
        e["args"]["correlation"]: e["name"] for e in of_category(trace, "cuda_driver")
    }
    assert all(
        launches[event["args"]["correlation"]].startswith("cuLaunchKernel")
        for event in of_triton
    )


def test_a_compiled_step_is_counted_and_timed_like_any_other(
    trained: Callable[[], None],
) -> None:
    launched = of_category(profiled(trained), "kernel")

    found = measured(trained)

    assert found.exact["launches"] == len(launched)
    assert found.exact["graph_breaks"] == 1, "torch's own, in Optimizer.step"
    assert found.exact["recompiles"] == 0
    assert found.exact["syncs"] == 0
    if os.environ.get("GPUPERF_STUB_CLOCK") == "virtual":
        busy_ms = sum(float(event["dur"]) for event in launched) / 1e3
        share = 100 * busy_ms / found.times["step_ms"].q50
        assert found.times["busy_pct"].q50 == pytest.approx(share, rel=0.02)


def test_what_inductor_fuses_is_never_in_memory() -> None:
    x = torch.ones(MIB // 4, device="cuda")
    before = torch.cuda.memory_allocated()

    def four_operations(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2).relu() + 1).exp()

    def launches_and_bytes(run: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
        def step() -> None:
            run(x)  # what it returns is not kept

        found = measured(step).exact
        return [found["launches"], found["peak_allocated_bytes"] - before]

    assert launches_and_bytes(four_operations) == [4, 2 * MIB]
    assert launches_and_bytes(torch.compile(four_operations)) == [1, MIB]


def broken(x: torch.Tensor) -> torch.Tensor:
    total = (x * 2).sum().item()
    return torch.relu(x) + total


def test_a_break_and_the_wait_at_it_are_found_with_their_line_and_recompilations() -> (
    None
):
    compiled = torch.compile(broken, dynamic=False)
    compiled(torch.ones(3, device="cuda"))
    x = torch.ones(4, device="cuda")

    def step() -> None:
        torch.cuda._sleep(SLEEP_CYCLES)
        compiled(x)

    found = measured(step, seconds=20)

    assert found.exact["graph_breaks"] == 1
    assert found.exact["recompiles"] == 2, "before the break, and behind it"
    lines = {f.kind: f.location and f.location.function for f in found.findings}
    assert lines[FindingKind.SYNC] == lines[FindingKind.BREAK] == "broken"


def test_cuda_graphs_of_a_compiled_step_replay_its_kernels() -> None:
    plain, captured = training(), training("reduce-overhead")
    of_plain = measured(plain).exact["launches"]
    trace = profiled(captured)

    found = measured(captured)

    graphs = [
        e for e in of_category(trace, "cuda_runtime") if e["name"] == "cudaGraphLaunch"
    ]
    by_graph = {e["args"]["correlation"] for e in graphs}
    replayed = [
        e["name"]
        for e in of_category(trace, "kernel")
        if e["args"]["correlation"] in by_graph
    ]
    assert len(graphs) == 2, "one forward, one backward"
    assert any("native_layer_norm" in name for name in replayed)
    assert any("native_layer_norm_backward" in name for name in replayed)
    assert found.exact["launches"] < of_plain


@triton.jit
def add_kernel(x, y, out, count, block: tl.constexpr):  # noqa: ANN001, ANN201, Triton reads them
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), block=256)
    return out


Add = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def as_it_is(add: Add) -> Add:
    return add


@pytest.mark.parametrize("made", [as_it_is, torch.compile])
def test_a_kernel_of_the_user_s_is_one_launch(made: Callable[[Add], Add]) -> None:
    x, y = torch.ones(2, 1000, device="cuda")
    step = partial(made(added), x, y)

    trace = profiled(step)

    (kernel,) = of_category(trace, "kernel")
    assert kernel["name"].startswith("add_kernel")
    assert kernel["args"]["grid"] == [4, 1, 1]
    assert measured(step).exact["launches"] == 1


@pytest.mark.stub
def test_what_a_kernel_takes_of_an_sm_is_read_from_its_machine_code(
    tmp_path: Path,
) -> None:
    x, y = torch.ones(2, 1000, device="cuda")
    out = torch.empty_like(x)
    kernel = add_kernel[(1,)](x, y, out, 1000, block=4096, num_warps=1, maxnreg=24)
    code = tmp_path / "add.cubin"
    code.write_bytes(kernel.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    said = subprocess.run(
        [str(tool), "-res-usage", str(code)], capture_output=True, text=True, check=True
    ).stdout

    registers, stack_bytes = map(int, re.findall(r"(?:REG|STACK):(\d+)", said))

    assert (kernel.n_regs, 4 * kernel.n_spills) == (registers, stack_bytes)
    assert stack_bytes > 0, "so few registers have room for so much"
