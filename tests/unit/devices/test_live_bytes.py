"""Sizes by hand: a float32 tensor of 1000 elements has 4000 bytes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest


torch = pytest.importorskip("torch")

from torch.testing._internal.two_tensor import TwoTensor

from pytest_gpuperf.devices.live_memory import LiveBytes, watched_step
from pytest_gpuperf.devices.memory_owners import HOST_DEVICE


def peak_bytes(step: Callable[..., object], *arguments: object) -> int:
    return watched_step(partial(LiveBytes, HOST_DEVICE), step, arguments).peak_bytes


def test_results_that_live_at_once_add_up() -> None:
    def step() -> None:
        ones = torch.ones(1000)
        twice = ones * 2
        del ones, twice

    assert peak_bytes(step) == 8000


def test_results_that_live_one_after_the_other_do_not() -> None:
    def step() -> None:
        for _ in range(5):
            torch.ones(1000)

    assert peak_bytes(step) == 4000


def test_what_the_step_reads_was_alive_from_its_start() -> None:
    batch = torch.ones(1000)

    def step(x: torch.Tensor) -> None:
        torch.ones(3000)
        x.sum()

    assert peak_bytes(step, batch) == 12_000 + 4000


def test_what_the_step_does_not_use_is_not_counted() -> None:
    unused = torch.ones(1000)

    assert peak_bytes(lambda: torch.ones(10)) == 40
    assert unused.numel() == 1000


def test_views_and_aliases_count_once() -> None:
    base = torch.ones(1000)

    def step() -> None:
        views = [base[:500], base.view(10, 100), base.detach(), base.t()]
        del views

    assert peak_bytes(step) == 4000


def test_the_whole_storage_behind_a_view_counts() -> None:
    view = torch.ones(1000)[:10]

    assert peak_bytes(view.neg_) == 4000


def test_old_gradients_count_until_they_are_let_go() -> None:
    """``zero_grad`` dispatches nothing: the gradients are seen as they die."""
    weight = torch.nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.SGD([weight])

    def zero_first() -> None:
        optimizer.zero_grad()
        (weight * 2).sum().backward()

    def zero_last() -> None:
        loss = (weight * 2).sum()
        optimizer.zero_grad()
        loss.backward()

    zero_first()

    assert peak_bytes(zero_first) == 4000 + 4000 + 8
    assert peak_bytes(zero_last) == 4000 + 4000 + 4000 + 4


def test_an_old_gradient_adds_to_what_lived_next_to_it() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))
    weight.grad = torch.ones(1000)

    def step() -> None:
        torch.ones(500)
        weight.grad = None
        torch.ones(700)

    assert peak_bytes(step) == 4000 + 2000


def test_a_gradient_that_python_never_saw_is_known() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))
    weight.sum().backward()

    def step() -> None:
        torch.ones(500)
        weight.grad = None

    assert peak_bytes(step) == 4000 + 2000


def test_memory_born_outside_torch_counts_from_its_first_use() -> None:
    def step() -> None:
        for _ in range(10):
            torch.frombuffer(bytearray(4000), dtype=torch.uint8).neg_()

    assert peak_bytes(step) == 4000


def test_a_storage_that_grows_counts_its_growth() -> None:
    def step() -> None:
        torch.empty(0).resize_(1000)

    assert peak_bytes(step) == 4000


def test_a_storage_that_was_shrunk_counts_what_is_left() -> None:
    def step() -> None:
        first = torch.ones(1000)
        first.untyped_storage().resize_(400)
        first.detach()
        second = torch.ones(1000)
        del first, second

    assert peak_bytes(step) == 4400


def test_a_storage_that_is_emptied_counts_no_more() -> None:
    """FSDP lets go of gathered parameters so, and no operation sees it."""

    def step() -> None:
        first = torch.ones(1000)
        first.untyped_storage().resize_(0)
        second = torch.ones(500)
        del first, second

    assert peak_bytes(step) == 4000


def test_a_storage_that_is_filled_again_counts_from_then_on() -> None:
    gathered = torch.ones(1000)
    storage = gathered.untyped_storage()
    storage.resize_(0)

    def step() -> None:
        torch.ones(1400)
        storage.resize_(4000)
        torch.ones(500)
        storage.resize_(0)
        torch.ones(1400)

    assert peak_bytes(step) == 6000
    assert torch.UntypedStorage.resize_ is torch._C.StorageBase.resize_


def test_an_old_storage_counts_until_it_is_emptied() -> None:
    old = torch.ones(1000)

    def step() -> None:
        torch.ones(300)
        old.untyped_storage().resize_(0)
        torch.ones(1200)

    assert peak_bytes(step) == 4000 + 1200


def test_a_resized_storage_of_another_device_does_not_count() -> None:
    elsewhere = torch.ones(1000, device="meta")

    def step() -> None:
        torch.ones(10)
        elsewhere.untyped_storage().resize_(8000)

    assert peak_bytes(step) == 40


def test_an_old_storage_that_grows_is_not_counted_twice() -> None:
    buffer = torch.ones(1000)

    assert peak_bytes(lambda: buffer.resize_(2000)) == 8000


def test_a_wrapper_counts_what_it_wraps() -> None:
    """A DTensor says that it has the bytes of all ranks, and holds those of this one."""
    both = TwoTensor(torch.ones(1000), torch.ones(1000))

    assert peak_bytes(lambda: both * 2) == 8000 + 8000


def test_a_gradient_of_a_wrapper_counts_until_it_is_let_go() -> None:
    weight = TwoTensor(torch.ones(1000), torch.ones(1000)).requires_grad_()
    weight.sum().backward()

    def step() -> None:
        weight.grad = None
        torch.ones(700)

    assert peak_bytes(step) == 8000


class Masked(TwoTensor):
    """Has a part that may be missing, as the tensors of ragged batches do."""

    mask = None

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b", "mask"], None


def test_a_part_that_a_wrapper_lacks_counts_nothing() -> None:
    masked = Masked(torch.ones(1000), torch.ones(1000))

    assert peak_bytes(masked.neg) == 8000 + 8000


def test_a_sparse_gradient_counts_its_indices_and_values() -> None:
    def step() -> None:
        indices, values = torch.zeros(1, 100, dtype=torch.int64), torch.ones(100)
        matrix = torch.sparse_coo_tensor(
            indices, values, (1000,), check_invariants=False
        )
        del indices, values, matrix

    assert peak_bytes(step) == 800 + 400


def test_tensors_in_lists_are_seen() -> None:
    parts = [torch.ones(1000), torch.ones(500)]

    assert peak_bytes(lambda: torch.cat(parts)) == 2 * 6000


class Guarded(torch.Tensor):  # type: ignore[misc]
    """Lets nobody touch it, as parameters do that are not initialised yet."""

    @classmethod
    def __torch_function__(cls, *_: object) -> object:
        msg = "somebody touched it"
        raise RuntimeError(msg)


def test_tensors_that_refuse_to_be_asked_are_passed_by() -> None:
    guarded = torch.ones(1000).as_subclass(Guarded)
    lazy = torch.nn.LazyLinear(3)

    assert peak_bytes(lambda: torch.ones(1000)) == 4000
    del guarded, lazy


def test_meta_tensors_have_no_bytes() -> None:
    assert peak_bytes(lambda: torch.ones(1000, device="meta") * 2) == 0


def test_the_parts_of_a_composite_operation_are_seen_in_inference_mode() -> None:
    weight = torch.ones(20, 10)

    def step() -> None:
        with torch.inference_mode():
            torch.nn.functional.linear(torch.ones(5, 10), weight)

    assert peak_bytes(step) == 800 + 200 + 400


def test_a_cycle_of_the_step_lives_until_its_end() -> None:
    """Collections are off inside: when they come would be chance."""

    def step() -> None:
        for _ in range(3):
            cycle: list[object] = [torch.ones(1000)]
            cycle.append(cycle)
            del cycle

    assert peak_bytes(step) == 12_000


@pytest.mark.parametrize("was_enabled", [True, False])
def test_garbage_collection_is_as_it_was(*, was_enabled: bool) -> None:
    (gc.enable if was_enabled else gc.disable)()
    try:
        peak_bytes(lambda: torch.ones(1))

        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()


def test_a_step_that_raises_leaves_no_mode_and_no_switch_behind() -> None:
    def step() -> None:
        msg = "the data ran out"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="the data ran out"):
        peak_bytes(step)

    assert gc.isenabled()
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_a_batch_that_is_taken_out_of_shared_memory_counts_from_its_first_use() -> None:
    """A worker's batch may come before its turn, and is then nothing of this step's."""
    arrived = torch.ones(1000).share_memory_().untyped_storage()

    def step(*, is_used: bool) -> None:
        batch = torch.empty(0).set_(arrived, 0, (1000,))
        torch.ones(100)
        if is_used:
            batch.neg_()

    assert peak_bytes(lambda: step(is_used=False)) == 400
    assert peak_bytes(lambda: step(is_used=True)) == 4000
