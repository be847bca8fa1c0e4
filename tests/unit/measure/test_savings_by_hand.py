"""Savings: what is promised of one is what it saves when it is written by hand."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.model.measurement import Saving


torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory_watch import EnoughSteps, watching_program
from pytest_gpuperf.measure.forecast import applied, forecast_of_program


HERE = str(Path(__file__).parent)
STEPS = 3


@pytest.fixture(scope="module", autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu(HERE, values=False):
        # Each step ends with a collection: it need not look at all of torch.
        gc.freeze()
        yield
        gc.unfreeze()


# Programs, with each saving written by hand.


class Blocks(nn.Module):  # type: ignore[misc]
    def __init__(self, blocks: list[Any], by_hand: Saving | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.recomputes = by_hand is Saving.CHECKPOINT

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            if self.recomputes:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x: Any) -> Any:
        return x + self.parts(x)


class Wide(Residual):
    def __init__(self, width: int, *more: Any) -> None:
        wide, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        super().__init__(wide, nn.ReLU(), *more, narrow)


def options(by_hand: Saving | None) -> dict[str, bool]:
    return {Saving.FOR_LOOP: {"foreach": False}, Saving.FUSED: {"fused": True}}.get(
        by_hand,  # type: ignore[arg-type]
        {},
    )


def train(
    model: Any,
    optimizer: Any,
    loss_of: Callable[[int], Any],
    by_hand: Saving | None,
    rows: int,
    scaler: Any = None,
) -> None:
    """Train with a late ``zero_grad``, or as it would be written *by_hand*."""
    parts = 2 if by_hand is Saving.HALF_BATCH else 1
    early = by_hand in {Saving.EARLY_ZERO_GRAD, Saving.HALF_BATCH}
    while True:
        if early:
            optimizer.zero_grad(set_to_none=True)
        for _ in range(parts):
            loss = loss_of(rows // parts)
            if not early:
                optimizer.zero_grad()
            (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def squares(model: Any, *shape: int) -> Callable[[int], Any]:
    return lambda rows: (
        model(torch.randn(rows, *shape, device="cuda")).float().square().mean()
    )


def perceptron(by_hand: Saving | None, rows: int = 4096) -> None:
    model = Blocks([Wide(128) for _ in range(3)], by_hand).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, **options(by_hand))
    train(model, optimizer, squares(model, 128), by_hand, rows)


def convolutions(by_hand: Saving | None, rows: int = 32) -> None:
    """Batch norm keeps statistics, and ReLU works in place."""
    blocks = [
        Residual(
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True)
        )
        for _ in range(3)
    ]
    model = nn.Sequential(nn.Conv2d(3, 16, 3), Blocks(blocks, by_hand)).cuda()
    optimizer = torch.optim.SGD(
        model.parameters(), 0.1, momentum=0.9, nesterov=True, **options(by_hand)
    )
    train(model, optimizer, squares(model, 3, 32, 32), by_hand, rows)


def transformer(by_hand: Saving | None, rows: int = 16) -> None:
    """Attention, and dropout whose masks are made again; its average is a copy."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
    model = Blocks([deepcopy(layer) for _ in range(2)], by_hand).cuda()
    average = deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), **options(by_hand))

    def loss_of(count: int) -> Any:
        loss = squares(model, 64, 128)(count)
        with torch.no_grad():
            squares(average, 64, 128)(count)
        return loss

    train(model, optimizer, loss_of, by_hand, rows)


def recurrent(by_hand: Saving | None, rows: int = 256) -> None:
    if by_hand is Saving.CHECKPOINT:
        msg = "it has no blocks"
        raise LookupError(msg)
    model = nn.LSTM(128, 128, num_layers=2, batch_first=True).cuda()
    optimizer = torch.optim.Adam(model.parameters(), **options(by_hand))
    train(model, optimizer, squares(lambda x: model(x)[0], 4, 128), by_hand, rows)


class Language(nn.Module):  # type: ignore[misc]
    """Its embedding and its head share their weight."""

    def __init__(self, by_hand: Saving | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8192, 128)
        self.blocks = Blocks([Wide(128, nn.Dropout(0.1)) for _ in range(2)], by_hand)
        self.head = nn.Linear(128, 8192, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        logits = self.head(self.blocks(self.embedding(tokens)))
        return functional.cross_entropy(logits, tokens)


def tied(by_hand: Saving | None, rows: int = 64) -> None:
    model = Language(by_hand).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), **options(by_hand))

    def loss_of(count: int) -> Any:
        return model(torch.zeros(count, dtype=torch.long, device="cuda"))

    train(model, optimizer, loss_of, by_hand, rows)


def scaled(by_hand: Saving | None, rows: int = 64) -> None:
    """Half precision; the optimizer is stepped by the scaler."""
    model = Blocks([Wide(256) for _ in range(3)], by_hand).cuda()
    optimizer = torch.optim.Adam(model.parameters(), **options(by_hand))
    inner = squares(model, 256)

    def loss_of(count: int) -> Any:
        with torch.autocast("cuda", torch.float16):
            return inner(count)

    scaler = torch.amp.GradScaler("cuda")
    train(model, optimizer, loss_of, by_hand, rows, scaler)


def without_fused(by_hand: Saving | None, rows: int = 64) -> None:
    """An optimizer of large state that has no fused kernel."""
    model = Blocks([Wide(256) for _ in range(2)], by_hand).cuda()
    optimizer = torch.optim.NAdam(model.parameters(), **options(by_hand))
    train(model, optimizer, squares(model, 256), by_hand, rows)


def already_fused(by_hand: Saving | None, rows: int = 64) -> None:
    """Many small weights, of which a state on the device shows."""
    model = Blocks([Wide(16) for _ in range(8)], by_hand).cuda()
    how = {"fused": True, **options(by_hand)}
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    train(model, optimizer, squares(model, 16), by_hand, rows)


ACTIVATIONS = {Saving.CHECKPOINT, Saving.HALF_BATCH}

PROGRAMS = {
    perceptron: ACTIVATIONS,
    convolutions: ACTIVATIONS,
    transformer: {Saving.EARLY_ZERO_GRAD, *ACTIVATIONS},
    recurrent: {Saving.HALF_BATCH},
    tied: set(),
    scaled: {Saving.FOR_LOOP, Saving.FUSED},
    without_fused: {Saving.FOR_LOOP},
    already_fused: {Saving.EARLY_ZERO_GRAD, *ACTIVATIONS},
}
"""What lowers the peak of each."""


def peak(run: Callable[[], None]) -> float:
    """Predict the peak as ``gpuperf memory`` does, without the workspaces of cuBLAS.

    It is infinite for what cannot be done.
    """
    try:
        with watching_program(HERE, STEPS) as memory:
            run()
            forecast = forecast_of_program(memory)
    except (LookupError, TypeError):
        return float("inf")
    assert forecast.steps == STEPS
    return forecast.allocated_bytes - memory.live.workspace_bytes


def promised(program: Callable[..., None], saving: Saving | None) -> float:
    defaults = program.__defaults__ or ()
    rows = defaults[0] // (2 if saving is Saving.HALF_BATCH else 1)

    def run() -> None:
        with applied(saving) if saving else nullcontext(), suppress(EnoughSteps):
            program(None, rows)

    return peak(run)


def written(program: Callable[..., None], saving: Saving) -> float:
    def run() -> None:
        with suppress(EnoughSteps):
            program(saving)

    return peak(run)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_promised_peak_is_that_of_the_change_made_by_hand(
    program: Callable[..., None],
) -> None:
    plain = promised(program, None)

    promises = {saving: promised(program, saving) for saving in Saving}

    by_hand = {saving: written(program, saving) for saving in Saving}
    assert promises == pytest.approx(by_hand, rel=0.02)
    lowered = {saving for saving in Saving if promises[saving] < 0.98 * plain}
    assert lowered == PROGRAMS[program]
