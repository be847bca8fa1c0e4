"""Collectives of real training steps, and groups of one rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_gpuperf.model.measurement import Collective


torch = pytest.importorskip("torch")

from torch import distributed, nn

from pytest_gpuperf.distributed.collectives import count_collectives
from pytest_gpuperf.distributed.device import TorchPeers
from pytest_gpuperf.distributed.group import alone


WEIGHTS = 64 * 32 + 32 + 32 * 8 + 8
"""Numbers in the parameters of the model; each has four bytes."""


@pytest.fixture
def rank() -> Iterator[None]:
    with alone():
        yield


@pytest.fixture
def one_of_two() -> Iterator[None]:
    """A rank whose only peer is torch's own fake: nothing is sent."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    distributed.destroy_process_group()


def layers() -> Any:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))


def training(model: Any) -> Callable[[], None]:
    rows = torch.ones(4, 64)

    def step() -> None:
        model.zero_grad()
        model(rows).mean().backward()

    return step


def counted(step: Callable[[], object]) -> tuple[Collective, ...]:
    for _ in range(3):  # DDP makes its buckets anew after the first
        step()
    found, _ = count_collectives(step)
    return found


def test_ddp_reduces_its_gradients_once_a_bucket(rank: None) -> None:
    model = nn.parallel.DistributedDataParallel(layers())

    assert counted(training(model)) == (
        Collective(kind="all_reduce", calls=1, size_bytes=4 * WEIGHTS),
    )


def test_fsdp_gathers_each_layer_twice_and_scatters_its_gradients_once(
    one_of_two: None,
) -> None:
    from torch.distributed.fsdp import fully_shard

    model = layers()
    for layer in (model[0], model[2], model):
        fully_shard(layer)

    assert counted(training(model)) == (
        Collective(kind="all_gather", calls=4, size_bytes=2 * 4 * WEIGHTS),
        Collective(kind="reduce_scatter", calls=2, size_bytes=4 * WEIGHTS),
    )


def test_collectives_are_named_as_torch_distributed_names_them(rank: None) -> None:
    from torch.distributed import _functional_collectives as functional

    ones = torch.ones(8)

    def step() -> None:
        distributed.broadcast(ones, 0)
        distributed.all_gather([torch.empty(8)], ones)
        distributed.barrier()
        functional.wait_tensor(
            functional.all_reduce(ones, "sum", distributed.group.WORLD)
        )

    assert set(counted(step)) == {
        Collective(kind="broadcast", calls=1, size_bytes=32),
        Collective(kind="all_gather", calls=1, size_bytes=32),
        Collective(kind="all_reduce", calls=1, size_bytes=32),
        Collective(kind="barrier", calls=1, size_bytes=0),
    }


def test_each_line_that_asks_for_a_collective_is_named(rank: None) -> None:
    model = nn.parallel.DistributedDataParallel(layers())

    def step() -> None:
        for _ in range(2):
            distributed.all_reduce(torch.ones(2))
        reported = [torch.empty(3)]
        distributed.all_gather(reported, torch.ones(3))
        training(model)()

    def lines() -> dict[Any, Any]:
        _, found = count_collectives(step)
        return {
            (f.op, f.location and f.location.line): (
                f.per_step,
                f.moved_bytes,
                f.metrics,
            )
            for f in found
        }

    for _ in range(3):  # DDP makes its buckets anew after the first
        step()
    first, both = step.__code__.co_firstlineno, ("collectives", "collective_bytes")
    backward = training.__code__.co_firstlineno + 5
    assert lines() == {
        ("all_reduce", first + 2): (2, 16, both),
        ("all_gather", first + 4): (1, 12, both),
        ("all_reduce", backward): (1, 4 * WEIGHTS, both),
    }


def test_a_step_on_its_own_has_none() -> None:
    assert counted(lambda: torch.ones(3) + 1) == ()


def test_peers_hear_each_other_on_a_group_of_their_own(rank: None) -> None:
    peers = TorchPeers()

    assert peers.count == 1
    assert peers.integers((3, 2**40)) == ((3, 2**40),)
    assert peers.objects("é") == ("é",)


def test_one_rank_has_a_group_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.delenv("RANK", raising=False)

    with alone():
        with alone():
            inside = distributed.get_world_size(), os.environ["LOCAL_RANK"]
        assert distributed.is_initialized()

    assert inside == (1, "0")
    assert not distributed.is_initialized()
    assert os.environ["LOCAL_RANK"] == "3"
    assert "RANK" not in os.environ


def test_a_test_may_leave_the_group_itself() -> None:
    with alone():
        distributed.destroy_process_group()

    assert not distributed.is_initialized()


def test_a_process_that_a_launcher_made_a_rank_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")

    with alone():
        assert not distributed.is_initialized()
