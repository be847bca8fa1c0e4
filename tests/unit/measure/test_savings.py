"""Savings: each one is applied without the code's help, changes no result, and is let go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pytest_gpuperf.model.measurement import Saving


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.live_memory import LiveBytes, watched_step
from pytest_gpuperf.devices.memory_owners import HOST_DEVICE
from pytest_gpuperf.measure.forecast import RepeatedBlocks, applied


class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(16, 512)
        self.narrow = torch.nn.Linear(512, 16)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return x + self.narrow(self.drop(torch.relu(self.wide(x))))


def training(**how: Any) -> tuple[Callable[[], float], Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block() for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    x = torch.randn(64, 16)

    def step() -> float:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step, model, optimizer


def peak_bytes(step: Callable[[], object]) -> int:
    step()
    return watched_step(partial(LiveBytes, HOST_DEVICE), step, ()).peak_bytes


@pytest.mark.parametrize("saving", Saving)
def test_a_step_computes_the_same_with_every_saving(saving: Saving) -> None:
    plain, *_ = training()
    expected = [plain() for _ in range(3)]
    step, *_ = training()

    with applied(saving):
        losses = [step() for _ in range(3)]

    assert losses == pytest.approx(expected, rel=1e-5)


def test_checkpointing_the_blocks_lowers_the_peak() -> None:
    plain, *_ = training()
    without = peak_bytes(plain)
    step, *_ = training()

    with applied(Saving.CHECKPOINT):
        assert peak_bytes(step) < 0.8 * without

    assert peak_bytes(step) == without


def test_gradients_that_are_let_go_early_lower_the_peak_of_a_late_zero_grad() -> None:
    plain, *_ = training()
    without = peak_bytes(plain)
    step, *_ = training()

    with applied(Saving.EARLY_ZERO_GRAD):
        assert peak_bytes(step) < without


def test_a_loop_over_the_parameters_lowers_the_peak_of_foreach() -> None:
    def updating_alone(**how: Any) -> Callable[[], object]:
        step, _, optimizer = training(**how)
        step()
        return optimizer.step

    without = peak_bytes(updating_alone(foreach=True))

    with applied(Saving.FOR_LOOP):
        assert peak_bytes(updating_alone(foreach=True)) < without


@pytest.mark.parametrize("saving", [Saving.FOR_LOOP, Saving.FUSED])
def test_an_optimizer_is_as_it_was_afterwards(saving: Saving) -> None:
    step, _, optimizer = training(foreach=True)

    with applied(saving):
        step()
        during = optimizer.param_groups[0]["foreach"]

    assert during is False
    assert optimizer.param_groups[0]["foreach"] is True
    assert optimizer.param_groups[0]["fused"] is None


def test_blocks_are_not_changed_and_are_called_as_before_afterwards() -> None:
    step, model, _ = training()
    call, before = torch.nn.Module.__call__, [dict(vars(block)) for block in model]

    with applied(Saving.CHECKPOINT):
        step()

    assert torch.nn.Module.__call__ is call
    assert [dict(vars(block)) for block in model] == before


def test_the_outermost_repeated_blocks_with_parts_are_taken() -> None:
    inner = [torch.nn.Sequential(torch.nn.Linear(2, 2)) for _ in range(2)]
    outer = [torch.nn.ModuleList(inner), torch.nn.ModuleList([torch.nn.ReLU()])]
    model = torch.nn.ModuleList(outer)

    blocks = RepeatedBlocks()

    assert all(blocks.has(block) for block in outer)
    assert not any(blocks.has(m) for m in [*inner, model, inner[0][0]])


def test_blocks_that_are_made_in_a_later_step_are_found_then() -> None:
    blocks = RepeatedBlocks()
    blocks.has(torch.nn.ReLU())
    model = torch.nn.Sequential(Block(), Block())

    assert not blocks.has(model)
    assert blocks.has(model[0])


@pytest.mark.parametrize(
    ("saving", "message"),
    [
        (Saving.CHECKPOINT, "no module has several blocks of one class"),
        (Saving.FOR_LOOP, "LBFGS has no option foreach"),
        (Saving.FUSED, "LBFGS has no option fused"),
    ],
)
def test_a_saving_with_nothing_to_apply_it_to_says_so(
    monkeypatch: pytest.MonkeyPatch, saving: Saving, message: str
) -> None:
    monkeypatch.setattr("gc.get_objects", list)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters())

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    with pytest.raises(LookupError, match=message), applied(saving):
        optimizer.step(step)


def test_an_optimizer_that_is_fused_stays_so_without_foreach() -> None:
    step, _, optimizer = training(fused=True)

    with applied(Saving.FOR_LOOP):
        step()
        assert optimizer.param_groups[0]["fused"] is True


def test_evaluation_is_not_recomputed() -> None:
    _, model, _ = training()
    model.eval()
    seen: list[bool] = []
    model[0].wide.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))

    with applied(Saving.CHECKPOINT):
        model(torch.randn(2, 16, requires_grad=True)).sum().backward()

    assert seen == [True]
