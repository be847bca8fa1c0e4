"""Code written for CUDA runs on the simulated GPU as it is, with real values."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_gpuperf.devices.simulated import simulated_gpu


F = nn.functional


@pytest.fixture(scope="module", autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu():
        yield


def same(on_device: Any, on_host: Any) -> bool:
    assert on_device.is_cuda
    return torch.allclose(on_device.detach().cpu(), on_host.detach(), atol=1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Linear(4, 3),
        lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.GELU()),
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
    ],
)
def test_a_training_step_gives_the_values_and_gradients_of_the_host(
    build: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    host = build()
    device = copy.deepcopy(host).to("cuda")
    batch = torch.randn(2, 5, 4)

    host(batch).square().sum().backward()
    device(batch.to("cuda")).square().sum().backward()

    for ours, theirs in zip(device.parameters(), host.parameters(), strict=True):
        assert same(ours, theirs)
        assert same(ours.grad, theirs.grad)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_layers_train(kind: type[nn.Module], *, batch_first: bool) -> None:
    torch.manual_seed(0)
    host = kind(4, 5, 2, batch_first=batch_first)
    device = copy.deepcopy(host).cuda()
    batch = torch.randn(3, 6, 4)

    host(batch)[0].sum().backward()
    device(batch.cuda())[0].sum().backward()

    for ours, theirs in zip(device.parameters(), host.parameters(), strict=True):
        assert same(ours.grad, theirs.grad)


def test_packed_sequences_go_through() -> None:
    layer = nn.GRU(4, 5, batch_first=True).cuda()
    batch = torch.randn(3, 6, 4, device="cuda")

    packed = nn.utils.rnn.pack_padded_sequence(batch, [6, 4, 2], batch_first=True)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(layer(packed)[0])

    assert padded.is_cuda
    assert lengths.tolist() == [6, 4, 2]
    assert lengths.is_cpu


def test_images_and_embeddings_train() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    ).cuda()
    table = nn.Embedding(5, 36).cuda()

    features = model(torch.randn(2, 3, 8, 8, device="cuda"))
    (features * table(torch.tensor([1, 2], device="cuda"))).sum().backward()

    assert model[0].weight.grad.abs().sum() > 0
    assert (table.weight.grad.abs().sum(1) > 0).tolist() == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_autocast_casts_as_on_cuda() -> None:
    layer = nn.Linear(3, 3).cuda()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).cuda()
    query = torch.randn(2, 3, 8, device="cuda")

    with torch.autocast("cuda"):
        low = layer(torch.ones(2, 3, device="cuda"))
        high = F.softmax(low, dim=-1)
        attended, _ = attention(query, query, query)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        brain = query @ query.mT
    attended.sum().backward()

    assert (low.dtype, high.dtype) == (torch.float16, torch.float32)
    assert (attended.dtype, brain.dtype) == (torch.float16, torch.bfloat16)
    assert attention.in_proj_weight.grad.dtype == torch.float32


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_replay_the_same_randomness(*, use_reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 3)).cuda()
    batch = torch.ones(2, 3, device="cuda", requires_grad=True)

    checkpoint(model, batch, use_reentrant=use_reentrant).sum().backward()

    assert batch.grad.is_cuda


@pytest.mark.parametrize(
    ("map_location", "is_cuda"),
    [
        (None, True),
        ("cuda", True),
        ("cuda:0", True),
        (torch.device("cuda"), True),
        ("cpu", False),
        ({"cuda:0": "cpu"}, False),
        (lambda storage, _: storage, False),
        (lambda storage, _: storage.cuda(), True),
    ],
)
def test_what_was_saved_is_loaded_where_it_is_wanted(
    map_location: Any,
    is_cuda: bool,  # noqa: FBT001
) -> None:
    model = nn.Linear(2, 2).cuda()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)

    loaded = torch.load(file, map_location=map_location)

    assert loaded["weight"].is_cuda is is_cuda
    assert loaded["weight"].tolist() == model.weight.tolist()


def test_a_checkpoint_saved_here_is_a_plain_one() -> None:
    model = nn.Linear(2, 2).cuda()
    file = io.BytesIO()

    torch.save(model, file)

    assert b"pytest_gpuperf" not in file.getvalue()


def test_parameters_stay_the_objects_they_were() -> None:
    model = nn.Linear(2, 2)
    weight = model.weight
    weight.decay = 0.5

    model.cuda()
    there = weight.is_cuda, model.weight is weight, weight.decay
    model.cpu()

    assert there == (True, True, 0.5)
    assert weight.is_cpu
    assert model.weight is weight
    assert isinstance(weight, nn.Parameter)


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("moved", [True, False], ids=["moved", "made there"])
def test_lazy_modules_get_their_shape_on_the_device(*, moved: bool) -> None:
    batch = torch.ones(2, 3)
    with simulated_gpu():
        layer = nn.LazyLinear(4).cuda() if moved else nn.LazyLinear(4, device="cuda")
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(batch.cuda()).sum().backward()
        optimizer.step()
        places = {str(p.device) for p in layer.parameters()}
        kinds = {isinstance(p, nn.Parameter) for p in layer.parameters()}
        gradient = layer.weight.grad.tolist()

    assert places == {"cuda:0"}
    assert kinds == {True}
    assert gradient == [[2.0] * 3] * 4


def test_what_is_done_to_data_is_hidden_from_autograd() -> None:
    with simulated_gpu():
        weight = torch.ones(3, device="cuda", requires_grad=True)
        squared = weight.square()
        weight.data.mul_(2)
        weight.data.unsqueeze_(0)
        squared.sum().backward()
        shape, values = weight.shape, weight.tolist()
        gradient = weight.grad.tolist()

    assert shape == (3,)
    assert values == [2.0, 2.0, 2.0]
    assert gradient == [4.0, 4.0, 4.0]


def test_data_moves_a_parameter() -> None:
    model = nn.Linear(2, 2)

    for parameter in model.parameters():
        parameter.data = parameter.data.cuda().half()

    assert model(torch.ones(1, 2, device="cuda", dtype=torch.half)).is_cuda


def test_tied_weights_stay_tied() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight

    nn.ModuleList([first, second]).cuda()

    assert first.weight is second.weight
    assert first.weight.is_cuda


def test_tensors_tell_their_types() -> None:
    device, host = torch.ones(2, device="cuda"), torch.ones(2)

    assert device.type() == "torch.cuda.FloatTensor"
    assert isinstance(device, torch.cuda.FloatTensor)
    assert not isinstance(host, torch.cuda.FloatTensor)
    assert host.type("torch.cuda.HalfTensor").dtype is torch.half
    assert device.type(torch.FloatTensor).is_cpu
    assert repr(device) == "tensor([1., 1.], device='cuda:0')"
    assert device.untyped_storage().device == torch.device("cuda:0")
    assert device.data_ptr() != 0


def test_methods_are_called_off_the_class_as_well() -> None:
    with simulated_gpu() as gpu:
        grid = torch.arange(6.0, device="cuda").reshape(3, 2)
        gpu.begin_step()
        picked = torch.Tensor.__getitem__(grid, [0, 2])
        waits = gpu.end_step().totals.syncs
        listed = torch.Tensor.tolist(picked)
        shown = torch.Tensor.__format__(grid.sum(), ".1f")
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor"):
            torch.Tensor.numpy(grid)

    assert waits == 1
    assert listed == [[0.0, 1.0], [4.0, 5.0]]
    assert shown == "15.0"


def test_moves_keep_the_strides_of_what_is_dense() -> None:
    turned = torch.arange(6.0).reshape(2, 3).t()

    with simulated_gpu():
        moved = turned.to("cuda")
        straightened = turned.to("cuda", memory_format=torch.contiguous_format)
        picked = turned[::2].cuda()

    assert moved.stride() == turned.stride() == (1, 3)
    assert straightened.stride() == picked.stride() == (2, 1)


def test_pickles_of_tensors_on_the_device_are_read_again() -> None:
    with simulated_gpu():
        pickled = pickle.dumps(torch.arange(3, device="cuda"))
        restored = pickle.loads(pickled)  # noqa: S301, our own
        where = str(restored.device)
        values = restored.tolist()

    assert where == "cuda:0"
    assert values == [0, 1, 2]


def test_moves_to_where_it_is_are_none() -> None:
    device, host = torch.ones(2, device="cuda"), torch.ones(2)

    assert device.to("cuda") is device
    assert device.cuda() is device
    assert device.to(torch.device("cuda", 0)) is device
    assert host.to("cpu") is host
    assert host.to(0).is_cuda
    assert host.type_as(device).is_cuda


def test_in_place_changes_of_shape_are_seen_outside() -> None:
    grid = torch.arange(6.0, device="cuda").view(2, 3).clone()

    grid.t_()
    turned = grid.tolist()
    grid.unsqueeze_(0).squeeze_()
    grid.resize_(4, 4)

    assert turned == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert grid.shape == (4, 4)


def test_outputs_are_resized() -> None:
    out = torch.empty(0, device="cuda")

    torch.add(torch.ones(2, device="cuda"), 1, out=out)

    assert out.tolist() == [2.0, 2.0]


def test_a_default_device_holds_for_everything_made() -> None:
    with torch.device("cuda"):
        made = [
            torch.tensor([1.0]),
            torch.zeros(2),
            torch.arange(3),
            torch.fft.fftfreq(4),
            nn.Linear(2, 2).weight,
        ]
        on_host = torch.zeros(2, device="cpu")

    assert all(tensor.is_cuda for tensor in made)
    assert on_host.is_cpu


def test_generators_repeat() -> None:
    generator = torch.Generator("cuda").manual_seed(3)
    first = torch.randn(3, device="cuda", generator=generator)

    second = torch.randn(3, device="cuda", generator=generator.manual_seed(3))

    assert first.tolist() == second.tolist()
    assert generator.device.type == "cuda"


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_functional_transforms_work() -> None:
    batch = torch.arange(3.0, device="cuda")

    gradient = torch.func.grad(lambda x: (x**3).sum())(batch)
    hessian = torch.func.hessian(lambda x: (x**3).sum())(batch)
    doubled = torch.func.vmap(lambda x: x * 2)(batch)

    assert gradient.tolist() == [0.0, 3.0, 12.0]
    assert hessian.diagonal().tolist() == [0.0, 6.0, 12.0]
    assert doubled.tolist() == [0.0, 2.0, 4.0]


def test_sparse_gradients_train() -> None:
    table = nn.Embedding(5, 3, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(list(table.parameters()))

    table(torch.tensor([1, 2], device="cuda")).sum().backward()
    is_sparse = table.weight.grad.is_sparse
    optimizer.step()

    assert is_sparse
    assert table.weight.is_cuda


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index))


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_pin(workers: int) -> None:
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=workers, pin_memory=True
    )

    batches = list(loader)

    assert all(batch.is_pinned() for batch in batches)
    assert sum(b.cuda(non_blocking=True).sum().item() for b in batches) == 120 * 4


def test_threads_share_the_device() -> None:
    layer = nn.Linear(3, 3).cuda()

    def work(number: int) -> Any:
        made = torch.full((2, 3), float(number), device="cuda")
        layer(made.to("cpu").to("cuda")).sum().backward()
        return made.sum().item()

    with ThreadPoolExecutor(2) as pool:
        sums = list(pool.map(work, range(4)))

    assert sums == [0.0, 6.0, 12.0, 18.0]
    assert layer.weight.grad.is_cuda


def test_queries_answer() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_name() == "simulated GPU"
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.mem_get_info() == (80 * 2**30, 80 * 2**30)
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
    assert torch.cuda.get_device_properties(0).total_memory == 80 * 2**30
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.backends.cudnn.version() == 91000


def test_streams_and_events_are_there() -> None:
    stream, start, end = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()

    with torch.cuda.stream(stream), torch.cuda.device(0):
        start.record(stream)
        tensor = torch.ones(2, device="cuda")
        tensor.record_stream(stream)
        end.record()
    torch.cuda.current_stream().wait_stream(stream)

    assert end.query()
    assert start.elapsed_time(end) == 0.0


APART = (
    "Expected all tensors to be on the same device, but found at least two devices, "
    "cuda:0 and cpu!"
)


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        (lambda device, host: device + host, APART),
        (lambda device, host: host.clone().add_(device), APART),
        (
            lambda device, host: F.conv2d(device[None, None], host[None, None]),
            (
                "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) "
                "should be the same"
            ),
        ),
        (
            lambda device, _: device.numpy(),
            (
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy "
                "the tensor to host memory first."
            ),
        ),
        (
            lambda device, _: device.pin_memory(),
            "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
        ),
        (lambda _, host: host.to("cuda:1"), "CUDA error: invalid device ordinal"),
    ],
)
def test_mistakes_raise_as_on_cuda(
    mix: Callable[[Any, Any], object], message: str
) -> None:
    device, host = torch.ones(2, 2, device="cuda"), torch.ones(2, 2)

    with pytest.raises((RuntimeError, TypeError)) as raised:
        mix(device, host)

    assert str(raised.value) == message


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the words changed before")
def test_a_product_of_both_devices_names_the_argument() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2, 2, device="cuda").mm(torch.ones(2, 2))

    assert str(raised.value) == (
        "Expected all tensors to be on the same device, but got mat2 is on cpu, "
        "different from other tensors on cuda:0 (when checking argument in method "
        "wrapper_CUDA_mm)"
    )


@pytest.mark.parametrize(
    ("mix", "argument", "kernel"),
    [
        (lambda x, number: x.clamp(min=number), "min", "clamp_Tensor"),
        (lambda x, number: torch.stack([x.sum(), number]), "tensors", "cat"),
        (torch.isin, "test_elements", "isin_Tensor_Tensor"),
        (torch.logaddexp, "other", "logaddexp"),
        (lambda x, number: x.take(number.long()), "index", "_take"),
    ],
)
@pytest.mark.skipif(torch.__version__ < "2.13", reason="the words changed before")
def test_kernels_that_compare_devices_take_no_number_from_the_host(
    mix: Callable[[Any, Any], object], argument: str, kernel: str
) -> None:
    with pytest.raises(RuntimeError) as raised:
        mix(torch.ones(2, 2, device="cuda"), torch.tensor(1.0))

    assert str(raised.value) == (
        f"Expected all tensors to be on the same device, but got {argument} is on cpu, "
        "different from other tensors on cuda:0 (when checking argument in method "
        f"wrapper_CUDA_{kernel})"
    )


def test_numbers_on_the_host_mix() -> None:
    device = torch.ones(2, device="cuda")

    assert (device * torch.tensor(2.0)).tolist() == [2.0, 2.0]
    assert torch.where(device > 0, device, torch.tensor(0.0)).tolist() == [1.0, 1.0]


def test_halves_without_a_cpu_kernel_are_computed_in_single() -> None:
    half = torch.eye(2, device="cuda", dtype=torch.half)

    distances = torch.cdist(half, half)

    assert distances.dtype is torch.half
    assert distances[0, 1].item() == pytest.approx(2**0.5, abs=1e-3)


def test_integers_without_a_cpu_kernel_are_counted() -> None:
    with simulated_gpu() as gpu:
        experts = torch.tensor([0, 2, 2, 3], device="cuda", dtype=torch.int32)
        gpu.begin_step()
        counts = torch.histc(experts, bins=4, min=0, max=3)
        audit = gpu.end_step()

    assert counts.dtype is torch.int32
    assert counts.tolist() == [1, 0, 2, 1]
    assert audit.findings == ()
    assert audit.not_checked == ()


def test_conjugates_are_computed() -> None:
    signal = torch.tensor([1 + 2j, 3 - 1j], device="cuda")

    assert torch.view_as_real(signal.conj()).tolist() == [[1.0, -2.0], [3.0, 1.0]]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_compressed_sparse_tensors_multiply() -> None:
    rows = torch.eye(2, device="cuda").to_sparse_csr()

    product = rows @ torch.ones(2, 2, device="cuda")

    assert rows.layout is rows.cpu().layout is torch.sparse_csr
    assert product.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_a_reduced_product_of_compressed_rows_trains(reduce: str) -> None:
    """Its kernel looks whether tensors inside ask for gradients, and they never do."""
    rows = torch.eye(2, device="cuda").to_sparse_csr()
    dense = torch.ones(2, 2, device="cuda", requires_grad=True)

    torch.sparse.mm(rows, dense, reduce).sum().backward()

    assert dense.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
