"""Without values sizes are exact, and a guess that could change them is no silent one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from math import isinf
from pathlib import Path
from typing import Any

import pytest


torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: N812, after the skip
from torch import nn
from torch.nn.utils import rnn

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory
from pytest_gpuperf.devices.simulated.tensor_values import (
    BACKING,
    Backing,
    available_bytes,
)
from pytest_gpuperf.errors import ErrorId, StepError


MIB = 2**20

STEERS = "no values are kept on the simulated GPU, so what was read is a guess, which decides what runs"
LEAVES = (
    "no values are kept on the simulated GPU, so what was read is a guess, and nothing shows where "
    "it goes"
)
ONCE = (
    "no values are kept on the simulated GPU, so the size of the result is a guess: each element "
    "once; give output_size"
)
SIZES = (
    "no values are kept on the simulated GPU, so the size of the result is a guess: the largest "
    "there can be"
)


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(values=False) as simulated:
        yield simulated


def guessed(gpu: SimulatedGpu, act: Callable[[], object]) -> list[tuple[str, str]]:
    gpu.begin_step()
    act()
    return [(missing.op, missing.reason) for missing in gpu.end_step().not_checked]


def test_a_training_step_runs_without_values_and_without_a_guess(
    gpu: SimulatedGpu,
) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 5),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    batch, labels = torch.randn(2, 3, 8, 8), torch.zeros(2, dtype=torch.int64)

    def step() -> object:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(batch.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return f"{loss.item() / 2:.3f} {loss:.2f}"

    assert guessed(gpu, step) == []
    assert step() == "0.500 1.00"
    assert gpu.end_step().totals.syncs == 5
    assert model[0].weight.inside.is_meta


def test_a_number_that_is_only_shown_or_computed_with_guesses_nothing(
    gpu: SimulatedGpu,
) -> None:
    loss = torch.ones((), device="cuda")

    def step() -> None:
        total = 0.0
        total += loss.item() * 2 - 1 / (1 + loss.item())
        str(total)

    assert guessed(gpu, step) == []


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x.item() > 0,
        lambda x: bool(x.item() * 2),
        lambda x: int(abs(-x.item()) + 1),
        lambda x: {x.item()},
        lambda x: x.long().item(),
        lambda x: (x > 0).item(),
        lambda x: x.item() != x.item(),
        lambda x: math.isnan(x.item()),
        lambda x: math.isfinite(x.item()),
        lambda x: isinf(x.item() * 2),
        lambda x: math.isclose(1, x.item()),
        lambda x: math.exp(x.item()) > 10,
        lambda x: math.sqrt(x.item()) < math.pow(x.item(), 2),
    ],
)
def test_a_number_that_steers_is_told(
    gpu: SimulatedGpu, act: Callable[[Any], Any]
) -> None:
    loss = torch.ones((), device="cuda")

    assert guessed(gpu, lambda: act(loss)) == [("Tensor.item", STEERS)]


def test_a_number_that_steers_by_way_of_numpy_is_told(gpu: SimulatedGpu) -> None:
    numpy = pytest.importorskip("numpy")
    loss = torch.ones((), device="cuda")

    assert guessed(gpu, lambda: numpy.exp(loss.item()) / 2) == []
    assert guessed(gpu, lambda: numpy.isnan(loss.item())) == [("Tensor.item", STEERS)]
    assert guessed(gpu, lambda: numpy.exp(loss.item()) > 3) == [("Tensor.item", STEERS)]


def test_a_number_that_is_only_computed_with_is_none_of_its_own(
    gpu: SimulatedGpu,
) -> None:
    loss = torch.ones((), device="cuda")

    assert guessed(gpu, lambda: f"{math.exp(loss.item()):.2f} {math.isnan(1.0)}") == []
    assert math.exp(loss.item()) == math.e


@pytest.mark.parametrize(
    ("act", "op", "reason"),
    [
        (bool, "aten::_local_scalar_dense", LEAVES),
        (float, "aten::_local_scalar_dense", LEAVES),
        (lambda x: x.cpu(), "aten::_to_copy", LEAVES),
        (lambda x: torch.zeros(()).copy_(x), "aten::copy_", LEAVES),
        (lambda x: torch.equal(x, x), "aten::equal", STEERS),
        (torch.nonzero, "aten::nonzero", SIZES),
        (torch.unique, "aten::_unique2", SIZES),
        (lambda x: torch.masked_select(x, x > 0), "aten::masked_select", SIZES),
        (lambda x: x[None][x[None] > 0], "aten::index", SIZES),
    ],
)
def test_what_cannot_be_followed_is_told(
    gpu: SimulatedGpu, act: Callable[[Any], Any], op: str, reason: str
) -> None:
    loss = torch.ones((), device="cuda")

    assert guessed(gpu, lambda: act(loss)) == [(op, reason)]


def test_repeats_without_their_sum_are_taken_for_one_each(gpu: SimulatedGpu) -> None:
    grid = torch.ones(3, 4, device="cuda", requires_grad=True)
    times = torch.tensor([1, 2, 3], device="cuda")
    found: list[Any] = []

    def repeat() -> None:
        found.append(grid.repeat_interleave(times, dim=0))
        found.append(torch.repeat_interleave(times))
        found[0].sum().backward()

    said = guessed(gpu, repeat)

    assert said == [("aten::repeat_interleave", ONCE)] * 2
    assert [tensor.shape for tensor in found] == [(3, 4), (3,)]


def test_repeats_whose_sum_is_given_are_no_guess(gpu: SimulatedGpu) -> None:
    grid = torch.ones(3, 4, device="cuda")
    times = torch.tensor([1, 2, 3], device="cuda")
    found: list[Any] = []

    def repeat() -> None:
        found.append(grid.repeat_interleave(times, dim=0, output_size=6))
        found.append(grid.repeat_interleave(2, dim=1))

    assert guessed(gpu, repeat) == []
    assert [tensor.shape for tensor in found] == [(6, 4), (3, 8)]


def test_the_line_of_a_guess_is_known(gpu: SimulatedGpu) -> None:
    loss = torch.ones((), device="cuda")
    gpu.begin_step()

    if loss.item() < 0:
        loss.zero_()
    (missing,) = gpu.end_step().not_checked

    assert missing.inner is not None
    assert Path(missing.inner.file) == Path(__file__)
    function = missing.inner.function
    assert function == "test_the_line_of_a_guess_is_known"


def test_guesses_of_sizes_are_the_largest(gpu: SimulatedGpu) -> None:
    grid = torch.ones(3, 4, device="cuda")
    mask = grid > 0

    assert grid[mask].shape == (12,)
    assert grid[mask.any(1)].shape == (3, 4)
    assert torch.nonzero(grid).shape == (12, 2)
    assert torch.masked_select(grid, mask).shape == (12,)
    assert torch.unique(grid).shape == (12,)
    grid[mask] = 0
    assert grid.shape == (3, 4)


def bincount() -> object:
    return torch.bincount(torch.ones(3, dtype=torch.int64, device="cuda"), minlength=4)


def ctc_backward() -> object:
    scores = torch.rand(9, 2, 5, device="cuda", requires_grad=True)
    F.ctc_loss(scores, torch.ones(2, 3).long().cuda(), [9, 9], [3, 3]).backward()
    return scores.grad


def margin_backward() -> object:
    scores = torch.rand(4, 5, device="cuda", requires_grad=True)
    F.multi_margin_loss(scores, torch.ones(4).long().cuda()).backward()
    return scores.grad


def least_squares() -> object:
    a = torch.rand(4, 2, device="cuda")
    return torch.linalg.lstsq(a, torch.rand(4, 3, device="cuda")).solution


def sparse_gradient() -> object:
    table = nn.Embedding(7, 3, sparse=True).cuda()
    table(torch.ones(4, dtype=torch.int64, device="cuda")).sum().backward()
    torch.optim.SparseAdam(table.parameters()).step()
    return table.weight.grad._values()


@pytest.mark.parametrize(
    ("act", "shape", "ops"),
    [
        (bincount, (4,), ["aten::bincount"]),
        (ctc_backward, (9, 2, 5), []),
        (margin_backward, (4, 5), []),
        (least_squares, (2, 3), ["aten::linalg_lstsq"]),
        (sparse_gradient, (4, 3), ["aten::_coalesce"]),
    ],
)
def test_an_operation_without_a_meta_kernel_goes_on(
    gpu: SimulatedGpu, act: Callable[[], Any], shape: tuple[int, ...], ops: list[str]
) -> None:
    found: list[Any] = []

    unchecked = guessed(gpu, lambda: found.append(act()))

    assert found[0].shape == shape
    assert [op for op, _ in unchecked] == ops


def test_whether_tensors_are_close_is_a_guess(gpu: SimulatedGpu) -> None:
    ones = torch.ones(2, device="cuda")

    assert guessed(gpu, lambda: torch.allclose(ones, ones, atol=1.0)) == [
        ("aten::equal", STEERS)
    ]


def test_an_operation_whose_sizes_nobody_knows_is_refused(gpu: SimulatedGpu) -> None:
    with pytest.raises(StepError) as caught:
        torch.ones(3, device="cuda").to_sparse().coalesce().to_sparse_csr()

    assert caught.value.error_id is ErrorId.GP307


def test_values_are_there_unless_they_are_not_wanted(gpu: SimulatedGpu) -> None:
    with simulated_gpu():
        assert torch.ones(2, device="cuda").inside.is_meta

    assert gpu.end_step().not_checked == ()


def test_what_needs_no_values_is_made_on_the_host(gpu: SimulatedGpu) -> None:
    grid = torch.ones(3, 4, device="cuda")

    def act() -> None:
        assert torch.zeros_like(grid, device="cpu").sum() == 0
        assert grid.new_full((2,), 3.0, device="cpu").tolist() == [3, 3]
        grid.copy_(torch.ones(3, 4))

    assert guessed(gpu, act) == []


def test_values_are_given_up_before_they_would_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with simulated_gpu() as gpu:
        weight = torch.ones(4, 4, device="cuda")
        monkeypatch.setattr(BACKING, "_available", lambda: 1000 * MIB)
        monkeypatch.setattr(BACKING, "_reserve", 100 * MIB)

        with watching_memory(0, from_now=True) as audit:
            huge = torch.empty(1000, MIB, device="cuda")
            product = weight @ weight
            weight.add_(product)
            weight.copy_(product)
            tied = weight.view(16)

        assert BACKING.switched == (
            "values on the simulated GPU need more than the 1000 MiB of memory that this "
            "machine has left: from there on it runs without values"
        )
        assert gpu.end_step().not_checked == ()
        assert huge.inside.is_meta
        assert product.inside.is_meta
        assert not tied.inside.is_meta
        assert (
            audit.live.now_bytes == 4000 * MIB + 2 * 512
        )  # the product, and the weight


def test_values_are_given_up_before_a_product_would_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with simulated_gpu():
        column, row = torch.ones(2**14, 1, device="cuda"), torch.ones(1, 2**14)
        monkeypatch.setattr(BACKING, "_available", lambda: 1000 * MIB)
        monkeypatch.setattr(BACKING, "_reserve", 100 * MIB)

        product = column @ row.cuda()

        assert product.inside.is_meta
        assert product.shape == (2**14, 2**14)
        assert BACKING.switched == (
            "values on the simulated GPU need more than the 1000 MiB of memory that this "
            "machine has left: from there on it runs without values"
        )


def test_values_are_given_up_where_the_host_refuses_memory_for_them() -> None:
    with simulated_gpu() as gpu:
        line = torch.ones(2**22, device="cuda")

        grid = line[None] + line[:, None]

        assert grid.inside.is_meta
        assert grid.shape == (2**22, 2**22)
        assert gpu.end_step().not_checked == ()


def test_the_host_is_asked_again_after_much_was_made() -> None:
    left = [4096 * MIB, 4096 * MIB, 700 * MIB]
    insides = Backing()
    insides.begin(values=True, available=lambda: left.pop(0))

    insides.made(200 * MIB)
    assert len(left) == 2
    insides.made(200 * MIB)
    assert insides.has_values
    insides.made(300 * MIB)

    assert left == []
    assert not insides.has_values
    assert insides.device == torch.device("meta")


def test_a_host_that_tells_nothing_holds_values() -> None:
    insides = Backing()
    insides.begin(values=True, available=lambda: None)

    insides.expect(2**50)

    assert insides.has_values


def test_the_less_of_machine_and_container_is_left(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:   2048 kB\n", encoding="ascii")
    assert available_bytes(meminfo, tmp_path) == 2 * MIB

    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert available_bytes(meminfo, tmp_path) == 2 * MIB

    (tmp_path / "memory.max").write_text("1000000\n", encoding="ascii")
    (tmp_path / "memory.current").write_text("900000\n", encoding="ascii")
    assert available_bytes(meminfo, tmp_path) == 100_000

    (tmp_path / "memory.stat").write_text("a 1\ninactive_file 50\n", encoding="ascii")
    assert available_bytes(meminfo, tmp_path) == 100_050
    assert available_bytes(tmp_path / "none", tmp_path / "none") is None


LENGTHS = "no values are kept on the simulated GPU, so the lengths are a guess: each as long as there can be"


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize(
    "on_host",
    [
        lambda lengths: lengths.cpu(),
        lambda lengths: lengths.tolist(),
        lambda lengths: (lengths > 1).sum(0, keepdim=True).expand(3).cpu(),
    ],
)
def test_sequences_of_unknown_length_are_as_long_as_there_can_be(
    gpu: SimulatedGpu, on_host: Any, kind: Any, *, batch_first: bool
) -> None:
    layer = kind(4, 6, batch_first=batch_first).cuda()
    shape = (3, 5, 4) if batch_first else (5, 3, 4)
    batch = torch.randn(shape, device="cuda", requires_grad=True)
    lengths = torch.tensor([2, 5, 3], device="cuda")
    kept: list[Any] = []

    def step() -> None:
        packed = rnn.pack_padded_sequence(
            batch, on_host(lengths), batch_first=batch_first, enforce_sorted=False
        )
        output, _ = rnn.pad_packed_sequence(layer(packed)[0], batch_first=batch_first)
        kept.append(output)
        output.sum().backward()

    missing = guessed(gpu, step)

    assert kept[0].shape == (*shape[:2], 6)
    assert batch.grad.shape == shape
    assert ("aten::_pack_padded_sequence", LENGTHS) in missing


def test_lengths_from_the_host_are_no_guess(gpu: SimulatedGpu) -> None:
    batch = torch.randn(3, 5, 4, device="cuda")

    packed = rnn.pack_padded_sequence(batch, [5, 3, 2], batch_first=True)

    assert packed.batch_sizes.tolist() == [3, 3, 2, 1, 1]
    assert packed.data.shape == (10, 4)
    assert not gpu.end_step().not_checked


@pytest.mark.parametrize("values", [True, False])
def test_lengths_on_the_device_are_refused_in_torch_s_words(*, values: bool) -> None:
    words = "should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"
    with simulated_gpu(values=values):
        batch = torch.randn(3, 5, 4, device="cuda")
        lengths = torch.tensor([5, 3, 2], device="cuda")

        with pytest.raises(RuntimeError, match=words):
            rnn.pack_padded_sequence(batch, lengths, batch_first=True)
