"""What torch runs on a GPU ends no program on the simulated one."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest


torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: N812, after the skip
from torch import nn

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


pytestmark = pytest.mark.filterwarnings("ignore")

Run = Callable[[], Any]


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu() as entered:
        yield entered


def waits(gpu: SimulatedGpu, run: Run) -> int:
    """How often *run* waits."""
    gpu.begin_step()
    run()
    return gpu.end_step().totals.syncs


def unchecked(gpu: SimulatedGpu, run: Run) -> set[str]:
    """What of *run* is not checked."""
    gpu.begin_step()
    run()
    return {found.op for found in gpu.end_step().not_checked}


def on_gpu(*size: int, **options: Any) -> Any:
    return torch.ones(*size, device="cuda", **options)


# Operators that take functions.


def conditional(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))


def loop(x: Any) -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    count = torch.zeros((), dtype=torch.long, device=x.device)
    return while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, t * 2), (count, x))[1]


def scanned(x: Any) -> Any:
    from torch._higher_order_ops.scan import scan

    return scan(lambda c, t: (c + t, c + t), x[0], x)[1]


def mapped(x: Any) -> Any:
    from torch._higher_order_ops.map import map as each

    return each(lambda row, other: row + other, x, x[0])


def combined(x: Any) -> Any:
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(torch.add, x, 0, combine_mode="generic")


def attended(x: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    q = x.view(1, 1, *x.shape).repeat(1, 1, 1, 8)
    return flex_attention(q, q, q, score_mod=lambda s, _b, _h, i, j: s + (i - j))


OPERATORS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "cond": (conditional, 1),
    # Once before the loop and once before each turn that may follow.
    "while_loop": (loop, 5),
    "scan": (scanned, 0),
    "map": (mapped, 0),
    "associative_scan": (combined, 0),
    # The number that masks.
    "flex_attention": (attended, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "expected"), OPERATORS.values(), ids=OPERATORS)
def test_an_operator_of_functions_runs_as_its_operations(
    gpu: SimulatedGpu, operator: Callable[[Any], Any], expected: int
) -> None:
    host = torch.arange(12.0).view(4, 3)
    device = host.cuda()
    found = []

    waited = waits(gpu, lambda: found.append(operator(device)))

    torch.testing.assert_close(found[0].cpu(), operator(host))
    assert waited == expected


@pytest.mark.slow
def test_an_operator_is_judged_unless_it_has_a_backward(gpu: SimulatedGpu) -> None:
    x = on_gpu(4, 3)
    gpu.begin_step()
    conditional(x)
    without = gpu.end_step()
    conditional(x.requires_grad_())
    trained = gpu.end_step()

    assert {found.op for found in without.as_eager} == {"torch.compile"}
    assert {found.op for found in trained.as_eager} == {"torch.compile", "cond"}


@pytest.mark.slow
def test_an_operator_of_functions_has_gradients() -> None:
    x = on_gpu(4, 3).requires_grad_()

    torch.compile(attended)(x).sum().backward()
    conditional(x).sum().backward()

    assert x.grad.shape == (4, 3)


def scored(x: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    q = x.view(1, 1, 4, 3).repeat(1, 1, 1, 8)
    return flex_attention(q, q, q)


# One in the forward, and those that the backward waits for: counted on torch for CUDA.
@pytest.mark.slow
@pytest.mark.parametrize(("operator", "expected"), [(conditional, 2), (scored, 3)])
def test_the_backward_of_an_operator_waits_as_well(
    gpu: SimulatedGpu, operator: Callable[[Any], Any], expected: int
) -> None:
    x = on_gpu(4, 3).requires_grad_()

    assert waits(gpu, lambda: operator(x).sum().backward()) == expected


# Three around the layers, and two in each.
@pytest.mark.parametrize(("layers", "expected"), [(1, 5), (2, 7)])
def test_the_fast_path_of_an_encoder_waits_for_its_padding(
    gpu: SimulatedGpu, layers: int, expected: int
) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers).cuda().eval()
    rows, padding = on_gpu(2, 6, 16), on_gpu(2, 6) < 1
    padding[0, 4:] = True

    def step() -> None:
        with torch.no_grad():
            encoder(rows, src_key_padding_mask=padding)

    assert waits(gpu, step) == expected


# Names of a build with CUDA.


def in_a_pool() -> Any:
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        return on_gpu(2)


NAMES: dict[str, Run] = {
    "allocator": torch.cuda.get_allocator_backend,
    "block": lambda: torch.cuda.caching_allocator_delete(
        torch.cuda.caching_allocator_alloc(1024)
    ),
    "host memory": lambda: torch.cuda.host_memory_stats()["num_host_alloc"],
    "nccl": lambda: torch.cuda.nccl.version() >= (2, 10),
    "pool": in_a_pool,
    "replicas": lambda: nn.parallel.replicate(nn.Linear(2, 2).cuda(), [0]),
    "sleep": lambda: torch.cuda._sleep(10),
    "nested": lambda: torch.cuda.memory_stats_as_nested_dict()["active"]["all"]["peak"],
    "runtime": lambda: torch._C._cudart.cudaGetLastError() + 1,
    "stream": lambda: torch._C._cuda_getCurrentRawStream(0) + 1,
    "workspace": lambda: torch._C._cuda_getCublasWorkspaceSize() // 1024,
}


@pytest.mark.parametrize("call", NAMES.values(), ids=NAMES)
def test_names_of_a_build_with_cuda_are_there(call: Run) -> None:
    call()


@pytest.mark.parametrize("name", ["_CudaDeviceProperties", "_broadcast_out", "_gather"])
def test_what_torch_imports_from_its_core_is_there(name: str) -> None:
    assert callable(getattr(torch._C, name))


@pytest.mark.parametrize("name", ["empty", "ones", "rand", "zeros"])
def test_a_factory_writes_into_a_tensor_of_its_device(name: str) -> None:
    with simulated_gpu(), torch.device("cuda"):
        out = torch.nn.init.eye_(torch.empty(3, 3))
        assert getattr(torch, name)(3, 3, out=out, device="cuda") is out


def cleared_workspaces() -> None:
    torch._C._cuda_clearCublasWorkspaces()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (cleared_workspaces, set()),
        (lambda: torch.cuda._sleep(1), set()),
        (torch.cuda.tunable.is_enabled, set()),
        (lambda: torch._C._cuda_record_memory_history(None), set()),
        (lambda: torch._C._nccl_all_reduce([], []), {"torch._C._nccl_all_reduce"}),
    ],
    ids=["workspaces", "sleep", "tunable", "history", "reduce"],
)
def test_only_names_that_may_matter_are_not_checked(
    gpu: SimulatedGpu, call: Run, named: set[str]
) -> None:
    assert unchecked(gpu, call) == named


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no_such_name", False),
        ("_cuda_no_such_name", False),
        ("_nccl_no_such_name", False),
        ("_cuda_tunableop_get_rotation_buffer_size", False),
        ("_cuda_tunableop_get_rotating_buffer_size", True),
        ("_cuda_isInBadFork", True),
        ("_cuda_sleep", True),
    ],
)
def test_the_core_has_the_names_of_a_build_with_cuda_alone(
    name: str,
    expected: object,
) -> None:
    assert hasattr(torch._C, name) is expected


# Two of four elements.


@pytest.mark.parametrize("backend", ["CUSPARSELT", "CUTLASS"])
@pytest.mark.parametrize("make", ["from_dense", "prune_dense_static_sort"])
def test_semi_structured_weights_multiply(
    gpu: SimulatedGpu, backend: str, make: str
) -> None:
    kind = getattr(torch.sparse, f"SparseSemiStructuredTensor{backend}")
    weight = on_gpu(64, 128, dtype=torch.float16)
    weight[:, ::2] = 0
    found = []

    def product() -> None:
        packed = getattr(kind, make)(weight)
        found.append(F.linear(on_gpu(8, 128, dtype=torch.float16), packed))

    named = unchecked(gpu, product)

    assert found[0].shape == (8, 64)
    assert found[0].is_cuda
    assert (backend == "CUSPARSELT") <= ("aten::_cslt_sparse_mm" in named)


# Operations of the program's own.


def doubled(x: Any) -> Any:
    assert x.is_cuda
    return x * x.sum().item()


def by_custom_op() -> Any:
    of_types = {"x": torch.Tensor, "return": torch.Tensor}
    doubled.__annotations__.update(of_types)
    return torch.library.custom_op("goes_on::doubled", doubled, mutates_args=())


def by_kernel_of_cuda() -> Any:
    torch.library.define("goes_on::twice", "(Tensor x) -> Tensor")
    torch.library.impl("goes_on::twice", "cuda", doubled)
    return torch.ops.goes_on.twice


def by_library() -> Any:
    library = torch.library.Library("goes_on_too", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", doubled, "CUDA")
    return lambda x: library and torch.ops.goes_on_too.f(x)


@pytest.mark.parametrize("make", [by_custom_op, by_kernel_of_cuda, by_library])
def test_kernels_in_python_run_on_the_device(
    gpu: SimulatedGpu, make: Callable[[], Any]
) -> None:
    operation, x = make(), on_gpu(2)

    assert waits(gpu, lambda: operation(x)) == 1
    assert unchecked(gpu, lambda: operation(x)) == set()
    assert operation(x).tolist() == [2, 2]


@pytest.mark.slow
def test_a_compiler_is_reset() -> None:
    torch._dynamo.reset()
    torch.compiler.reset()
    torch.compiler.cudagraph_mark_step_begin()


# Scripts.


def scripted() -> Any:
    return torch.jit.script(nn.Linear(3, 2).cuda())


def traced() -> Any:
    return torch.jit.trace(nn.Linear(3, 2).cuda(), (on_gpu(4, 3),))


@pytest.mark.parametrize("make", [scripted, traced])
def test_a_script_is_one_and_trains(gpu: SimulatedGpu, make: Callable[[], Any]) -> None:
    assert "torch.jit" in str(unchecked(gpu, make))
    module = make()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    for _ in range(3):
        module(on_gpu(4, 3)).sum().backward()
        optimizer.step()
    module.to("cpu")

    assert isinstance(module, torch.jit.ScriptModule)
    assert module(torch.ones(4, 3)).device.type == "cpu"


def read(x: torch.Tensor) -> float:
    made = torch.zeros(2, device="cuda") + x
    if bool((made > 0).any()):
        made = made * 2
    return float(made.sum().item())


def test_waits_of_a_script_are_seen(gpu: SimulatedGpu) -> None:
    script = torch.jit.script(read)

    assert script(on_gpu(2)) == 4.0
    assert waits(gpu, lambda: script(on_gpu(2))) == 2


# Classes.


class Edge(torch.Tensor):
    def __new__(cls, data: Any) -> Any:
        return super().__new__(cls, data)


class Counted(torch.Tensor):
    """One that hears of each call."""

    calls: ClassVar[list[str]] = []

    @staticmethod
    def __new__(cls: Any, data: Any) -> Any:
        return torch.Tensor._make_subclass(cls, data, data.is_floating_point())

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_is_made_of_a_tensor() -> None:
    edges = Edge(on_gpu(4))

    assert type(Edge(torch.arange(4))) is Edge
    assert isinstance(edges, Edge)
    assert edges.is_cuda
    assert edges.device.type == "cuda"
    assert not isinstance(edges.as_subclass(torch.Tensor), Edge)
    assert edges.as_subclass(torch.Tensor).is_cuda


def test_a_tensor_of_a_users_class_is_printed_as_one() -> None:
    class Edges(torch.Tensor):
        pass

    wide = torch.arange(40.0).reshape(2, 20).as_subclass(Edges)

    assert repr(wide[0, :2].cuda()) == "Edges([0., 1.], device='cuda:0')"
    assert f"{wide.sum().cuda()!r}" == "Edges(780., device='cuda:0')"
    assert repr(wide.cuda()) == f"{repr(wide)[:-1]}, device='cuda:0')"


@pytest.mark.parametrize(
    "run",
    [
        lambda e: e + 1,
        lambda e: e[0],
        lambda e: e.clone(),
        lambda e: torch.stack([e, e]),
        lambda e: e.cpu(),
        lambda e: e.cpu().to("cuda"),
    ],
)
def test_results_of_a_subclass_are_of_it(run: Callable[[Any], Any]) -> None:
    found = run(Edge(on_gpu(4)))

    assert isinstance(found, Edge)
    assert type(found.cpu()) is Edge


def test_a_subclass_that_hears_of_calls_is_trained() -> None:
    weights = Counted(on_gpu(4))

    doubled = weights * 2
    doubled.sum().backward()

    assert isinstance(doubled, Counted)
    assert "mul" in Counted.calls
    assert weights.is_leaf
    assert weights.grad.tolist() == [2.0] * 4


def test_a_tensor_of_numbers_is_made_as_ever() -> None:
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert torch.Tensor([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert torch.Tensor(torch.ones(2)).tolist() == [1.0, 1.0]


def offloaded(layer: Any) -> Any:
    layer.weight.data = layer.weight.data.cpu()
    assert not layer.weight.is_cuda
    layer.weight.data = layer.weight.data.cuda()
    return layer.weight


def shaped_later(_: Any) -> Any:
    layer = nn.LazyLinear(2).cuda()
    layer(on_gpu(1, 2))
    return layer.weight


PARAMETERS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda layer: layer.weight,
    "copied": lambda layer: copy.deepcopy(layer).weight,
    "halved": lambda layer: layer.half().weight,
    "made of data": lambda layer: type(layer.weight)(layer.weight.data.clone()),
    "moved and back": lambda layer: layer.cpu().cuda().weight,
    "on the device": lambda _: nn.Linear(2, 2, device="cuda").weight,
    "pickled": lambda layer: pickle.loads(pickle.dumps(layer)).weight,  # noqa: S301
    "put in its place": offloaded,
    "shaped later": shaped_later,
}


@pytest.mark.parametrize("make", PARAMETERS.values(), ids=PARAMETERS)
def test_a_parameter_is_of_torchs_own_class(make: Callable[[Any], Any]) -> None:
    weight = make(nn.Linear(2, 2).cuda())

    assert type(weight) is nn.Parameter
    assert weight.is_cuda
    assert weight.requires_grad
    assert repr(weight).startswith("Parameter containing:\ntensor(")
    weight.sum().backward()
    assert weight.grad.is_cuda


def test_what_a_user_writes_on_a_parameter_is_pickled() -> None:
    weight = nn.Linear(2, 2).cuda().weight
    weight.decays = False

    assert pickle.loads(pickle.dumps(weight)).decays is False  # noqa: S301


class Quantized(nn.Parameter):
    pass


def test_parameters_on_the_host_are_as_ever() -> None:
    made = Quantized(torch.ones(2))

    assert type(made) is Quantized
    assert made.sum().item() == 2
    assert nn.Parameter(torch.ones(2)).data.device.type == "cpu"


@pytest.mark.slow
def test_a_compiled_module_is_one_around_the_module() -> None:
    net = nn.Linear(2, 2).cuda()

    compiled = torch.compile(net)

    assert type(compiled).__name__ == "OptimizedModule"
    assert compiled._orig_mod is net
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert copy.deepcopy(compiled)(on_gpu(1, 2)).is_cuda
    assert torch.compile(compiled.forward) is not None


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + torch.arange(3, device=x.device)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: nn.Linear(3, 3), Shifted])
def test_an_exported_network_runs_on_the_device(
    gpu: SimulatedGpu, make: Callable[[], Any]
) -> None:
    net, x = make().cuda(), on_gpu(4, 3)
    gpu.begin_step()
    exported = torch.export.export(net, (x,))
    audit = gpu.end_step()

    assert (audit.findings, audit.copies) == ((), ())
    assert {found.op for found in audit.not_checked} == {"torch.export"}
    torch.testing.assert_close(exported.module()(x).cpu(), net(x).cpu())


@pytest.mark.slow
def test_an_exported_network_is_decomposed() -> None:
    net, x = nn.Linear(3, 3).cuda(), on_gpu(4, 3)

    program = torch.export.export(net, (x,)).run_decompositions()

    torch.testing.assert_close(program.module()(x).cpu(), net(x).cpu())


def stacked() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 5))


@pytest.mark.parametrize("graphs", [1, 2])
def test_a_network_moves_while_graphs_keep_its_weights(graphs: int) -> None:
    net = stacked()
    kept = [net(torch.ones(2, 3)) for _ in range(graphs)]
    weight = net[0].weight

    net.cuda()
    kept += [net(on_gpu(2, 3)) for _ in range(graphs)]
    assert net[0].weight is weight
    net.to("cpu")

    assert net[0].weight is weight
    assert net(torch.ones(2, 3)).device.type == "cpu"


# Layouts.


def rows(*width: int, **options: Any) -> Any:
    return torch.nested.nested_tensor(
        [torch.randn(3, *width), torch.randn(5, *width)], device="cuda", **options
    )


def attend(nested: Any) -> Any:
    q = nested.transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q)


NESTED: dict[str, Run] = {
    "attention": lambda: attend(rows(2, 8)),
    "attention, jagged": lambda: attend(rows(2, 8, layout=torch.jagged)),
    "attention, jagged, with a gradient": lambda: (
        attend(rows(2, 8, layout=torch.jagged, requires_grad=True))
        .values()
        .sum()
        .backward()
    ),
    "attention, jagged, of a layer": lambda: (
        attend(
            nn.Linear(8, 8).cuda()(rows(8, layout=torch.jagged)).unflatten(-1, [2, 4])
        )
        .values()
        .sum()
        .backward()
    ),
    "layer": lambda: nn.Linear(8, 4).cuda()(rows(8)),
    "backward": lambda: (
        nn.Linear(8, 4).cuda()(rows(8)).to_padded_tensor(0.0).sum().backward()
    ),
    "product": lambda: torch.matmul(rows(8), rows(8).transpose(-1, -2)),
    "transposed": lambda: rows(8).transpose(1, 2).contiguous(),
    "normalized": lambda: nn.LayerNorm(8).cuda()(rows(8)),
    "shown": lambda: repr(rows(8)),
    "scaled": lambda: rows(8) * 2.0,
    "scaled in place": lambda: rows(8).mul_(2.0),
}


@pytest.mark.parametrize("run", NESTED.values(), ids=NESTED)
def test_nested_tensors_run(gpu: SimulatedGpu, run: Run) -> None:
    assert "bug of its own" not in str(_reasons(gpu, run))


COMPRESSED: dict[str, Run] = {
    "matrix": lambda: on_gpu(4, 4).to_sparse_csr() @ on_gpu(4, 2),
    "vector": lambda: on_gpu(4, 4).to_sparse_csr() @ on_gpu(4),
    "sum": lambda: on_gpu(4, 4).to_sparse_csr().sum(),
    "columns": lambda: on_gpu(4, 4).to_sparse_csc() @ on_gpu(4, 2),
    "scaled": lambda: on_gpu(4, 4).to_sparse_csr() * 2,
    "scaled in place": lambda: on_gpu(4, 4).to_sparse_csc().mul_(2),
    "dense and compressed": lambda: on_gpu(4, 4) + on_gpu(4, 4).to_sparse_csr(),
    "in place": lambda: on_gpu(4, 4).add_(on_gpu(4, 4).to_sparse_csr()),
    "mask": lambda: on_gpu(4, 4).sparse_mask(on_gpu(4, 4).to_sparse_csr()),
    "blocks": lambda: on_gpu(4, 4).to_sparse_bsr((2, 2)) @ on_gpu(4, 2),
    "added": lambda: torch.addmm(
        on_gpu(4, 4), on_gpu(4, 4).to_sparse_csr(), on_gpu(4, 4)
    ),
}


@pytest.mark.parametrize("run", COMPRESSED.values(), ids=COMPRESSED)
def test_compressed_matrices_run(gpu: SimulatedGpu, run: Run) -> None:
    found = _reasons(gpu, run)

    assert found
    assert "bug of its own" not in str(found)


def _reasons(gpu: SimulatedGpu, run: Run) -> set[str]:
    gpu.begin_step()
    run()
    return {found.reason for found in gpu.end_step().not_checked}


# Counts.


def test_each_element_that_is_printed_is_read(gpu: SimulatedGpu) -> None:
    six = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).cuda()

    waited = waits(gpu, lambda: print(six, file=io.StringIO()))

    assert waited == 18 if torch.__version__ >= (2, 9) else waited > 6
    assert waits(gpu, lambda: repr(torch.empty(0, device="cuda"))) == 0
    assert str(six).startswith("tensor([0.1000, ")


def test_unpickling_copies_the_storage_and_then_its_bytes(gpu: SimulatedGpu) -> None:
    stored = pickle.dumps(on_gpu(8))

    assert waits(gpu, lambda: pickle.loads(stored)) == 2  # noqa: S301


def test_a_capture_begins_when_the_device_is_done(gpu: SimulatedGpu) -> None:
    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            on_gpu(2)

    assert waits(gpu, capture) == 1


# Streams, and the memory of graphs: every number is that of real torch over stub CUDA.


def test_a_stream_is_current_inside() -> None:
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()

    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        with other:
            assert torch.cuda.current_stream() == other
        assert torch.cuda.current_stream() != other
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.set_stream(stream)
    assert torch.cuda.current_stream().cuda_stream == stream.cuda_stream != 0
    torch.cuda.set_stream(torch.cuda.default_stream())


def captured(pool: Any = None) -> tuple[Any, Any]:
    graph, x = torch.cuda.CUDAGraph(), on_gpu(1024, 1024)
    with torch.cuda.graph(graph, pool=pool):
        assert torch.cuda.is_current_stream_capturing()
        return graph, (x @ x).relu()


def two_of_one_pool() -> Any:
    first = captured()
    return first, captured(first[0].pool())


def ended_graph() -> Any:
    captured()[0].reset()
    torch.cuda.empty_cache()


def graphed_layer() -> Any:
    layer = torch.cuda.make_graphed_callables(
        nn.Linear(512, 512).cuda(), (on_gpu(8, 512),)
    )
    layer(on_gpu(8, 512)).sum().backward()
    return layer


def pooled() -> Any:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = on_gpu(3, 2**20)
    return pool, kept, on_gpu(8)


def on_two_streams() -> Any:
    with torch.cuda.stream(torch.cuda.Stream()):
        on_gpu(2**20)
    return on_gpu(2**20)


POOLS: dict[str, tuple[Run, int, int]] = {
    "a graph": (captured, 37749760, 77594624),
    "graphs of one pool": (two_of_one_pool, 41945088, 77594624),
    "a graph that is reset": (ended_graph, 0, 0),
    "a graphed layer": (graphed_layer, 136370176, 140509184),
    "a pool": (pooled, 12583424, 14680064),
    "streams": (on_two_streams, 4194304, 41943040),
}


@pytest.mark.parametrize("case", POOLS)
def test_each_pool_and_stream_has_memory_of_its_own(case: str) -> None:
    run, allocated, reserved = POOLS[case]
    gc.collect()
    with watching_memory(from_now=True) as audit:
        kept = run()

        assert torch.cuda.memory_allocated() == allocated
        assert torch.cuda.memory_reserved() == reserved
        del kept
    assert audit.live.unchecked == {}


@pytest.mark.parametrize(
    "copy",
    [
        lambda meta: torch.ones(2, device="cuda").copy_(meta),
        lambda meta: meta.to("cuda"),
    ],
    ids=["copy_", "to"],
)
def test_nothing_is_copied_out_of_a_meta_tensor(copy: Callable[[Any], object]) -> None:
    with simulated_gpu(), pytest.raises(NotImplementedError, match="no data"):
        copy(torch.empty(2, device="meta"))


ONE = ([1, 1], [1, 1], [1, 1])
AS_CUDNN = (1, False, False, True)
AS_ASKED = (True, 0.0, True)  # sums, dropout, causal


@pytest.mark.parametrize(
    ("by_name", "plain"),
    [
        (
            lambda x, w, _: torch.cudnn_convolution(x, w, *ONE, *AS_CUDNN),
            lambda x, w, _: F.conv2d(x, w, padding=1),
        ),
        (
            lambda x, w, _: torch.cudnn_convolution_transpose(
                x, w, [0, 0], [0, 0], [1, 1], [1, 1], *AS_CUDNN
            ),
            lambda x, w, _: F.conv_transpose2d(x, w),
        ),
        (
            lambda x, w, b: torch.cudnn_convolution_relu(x, w, b, *ONE, 1),
            lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(),
        ),
        (
            lambda x, w, b: torch.cudnn_convolution_add_relu(x, w, x, 0.5, b, *ONE, 1),
            lambda x, w, b: (F.conv2d(x, w, b, padding=1) + x / 2).relu(),
        ),
        (
            lambda x, w, b: torch.ops.aten._conv_depthwise2d(
                x, w[:, :1], [3, 3], b, *ONE
            ),
            lambda x, w, b: F.conv2d(x, w[:, :1], b, padding=1, groups=4),
        ),
    ],
    ids=["plain", "transposed", "relu", "add_relu", "depthwise"],
)
def test_a_convolution_of_cudnn_by_name_is_the_convolution(
    gpu: SimulatedGpu, by_name: Callable[..., Any], plain: Callable[..., Any]
) -> None:
    sizes = (2, 4, 8, 8), (4, 4, 3, 3), (4,)
    x, w, b = (torch.randn(size).cuda() for size in sizes)

    assert unchecked(gpu, lambda: by_name(x, w, b)) == set()
    assert torch.allclose(by_name(x, w, b), plain(x, w, b), atol=1e-5)


def test_a_convolution_of_cudnn_by_name_is_trained() -> None:
    def trained(run: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
        torch.manual_seed(0)
        x, w = torch.randn(2, 4, 8, 8).cuda(), torch.randn(4, 4, 3, 3).cuda()
        run(x.requires_grad_(), w.requires_grad_()).square().sum().backward()
        return x.grad, w.grad

    with torch.autocast("cuda", torch.bfloat16):
        cast = torch.cudnn_convolution(
            on_gpu(2, 4, 8, 8), on_gpu(4, 4, 3, 3), *ONE, *AS_CUDNN
        )
    assert cast.dtype is torch.bfloat16

    by_name = trained(lambda x, w: torch.cudnn_convolution(x, w, *ONE, *AS_CUDNN))
    plain = trained(lambda x, w: F.conv2d(x, w, padding=1))

    for one, other in zip(by_name, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def sampled(x: Any, grid: Any) -> Any:
    return F.grid_sample(x, grid, align_corners=True)


@pytest.mark.parametrize(
    ("by_name", "plain", "sizes"),
    [
        (torch.cudnn_grid_sampler, sampled, [(2, 3, 8, 8), (2, 4, 4, 2)]),
        (
            lambda t: torch.cudnn_affine_grid_generator(t, 2, 3, 4, 4),
            lambda t: F.affine_grid(t, [2, 3, 4, 4], align_corners=True),
            [(2, 2, 3)],
        ),
        (
            lambda *qkv: torch.ops.aten._scaled_dot_product_cudnn_attention(
                *qkv, None, *AS_ASKED
            )[0],
            lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True),
            [(2, 4, 8, 16)] * 3,
        ),
    ],
    ids=["grid_sampler", "affine_grid", "attention"],
)
def test_what_cudnn_does_by_name_is_trained_as_without(
    gpu: SimulatedGpu,
    by_name: Callable[..., Any],
    plain: Callable[..., Any],
    sizes: Sequence[Any],
) -> None:
    def trained(run: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        given = [torch.rand(size).cuda().requires_grad_() for size in sizes]
        run(*given).square().sum().backward()
        return [tensor.grad for tensor in given]

    assert unchecked(gpu, lambda: trained(by_name)) == set()
    for one, other in zip(trained(by_name), trained(plain), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_attention_of_cudnn_by_its_inner_name_is_that_attention(
    gpu: SimulatedGpu,
) -> None:
    q, k, v = (on_gpu(2, 4, 8, 16) for _ in range(3))
    forward = torch.ops.aten._cudnn_attention_forward

    assert (
        unchecked(gpu, lambda: forward(q, k, v, *[None] * 3, 8, 8, AS_ASKED[0]))
        == set()
    )
    found, log_sum, *_ = forward(q, k, v, *[None] * 3, 8, 8, AS_ASKED[0])
    expected = F.scaled_dot_product_attention(q, k, v)
    assert torch.allclose(found, expected, atol=1e-5)
    assert log_sum.numel() == 2 * 4 * 8


@pytest.mark.parametrize(
    ("tensor", "parameters", "said"),
    [
        (torch.bfloat16, torch.float32, "BFloat16 but found Float"),
        (torch.float32, torch.bfloat16, "Float but found BFloat16"),
        (torch.float16, torch.float32, "Half but found Float"),
    ],
)
@pytest.mark.parametrize(
    "norm",
    [lambda: nn.LayerNorm(16), lambda: nn.GroupNorm(2, 8)],
    ids=["layer", "group"],
)
def test_a_norm_of_parameters_of_another_dtype_ends_as_on_cuda(
    norm: Callable[[], nn.Module], tensor: Any, parameters: Any, said: str
) -> None:
    layer, x = norm().to("cuda", parameters), on_gpu(4, 8, 16, dtype=tensor)

    with pytest.raises(RuntimeError, match=f"expected scalar type {said}"):
        layer(x)

    with torch.autocast("cuda"):
        assert layer(x).dtype is torch.float32
    assert layer(x.to(parameters)).dtype is parameters


@pytest.mark.parametrize("run", [torch.add, torch.mul, torch.maximum])
def test_a_tensor_on_meta_is_refused_with_the_gpu_s_name(
    run: Callable[[Any, Any], Any],
) -> None:
    said = "Tensor on device meta is not on the expected device cuda:0"

    with pytest.raises(RuntimeError, match=said):
        run(on_gpu(2), torch.ones(2, device="meta"))


# Memory without a tensor, and replicas.


def test_a_storage_is_made_copied_and_looked_at_on_the_device() -> None:
    storage = torch.UntypedStorage(8, device="cuda")

    storage.copy_(torch.ones(2).untyped_storage())
    storage[0] = 0
    copied = torch.empty(0, device="cuda").set_(storage.clone(), 0, (2,))

    assert storage.is_cuda
    assert storage.tolist() == [0, 0, 128, 63, 0, 0, 128, 63]
    assert copied.is_cuda
    assert copied[1].item() == 1
    assert torch.UntypedStorage(4).device.type == "cpu"


def test_replicas_take_batches_of_the_host() -> None:
    replicas = nn.DataParallel(nn.Linear(2, 2).cuda())

    assert replicas(torch.ones(4, 2)).is_cuda
    assert replicas(input=torch.ones(4, 2)).is_cuda
