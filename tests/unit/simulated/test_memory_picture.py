"""What memory is for at the peak, and which lines hold it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn

from pytest_gpuperf.devices.memory_picture import Picture, StorageRole
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory
from pytest_gpuperf.devices.simulated.recurrent import DROPOUT_STATES
from pytest_gpuperf.devices.simulated.tensor_values import BACKING
from pytest_gpuperf.measure.emulated import audit
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import FindingKind, Phase
from pytest_gpuperf.model.measurement import Measurement


KIB, MIB = 2**10, 2**20
HERE = Path(__file__)
WEIGHTS = 256 * 256 * 4


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[SimulatedDevice]:
    simulated = SimulatedDevice(str(HERE.parent))
    simulated.enter()
    yield simulated
    simulated.leave()


def training(rows: int) -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(256, 256, bias=False), nn.Tanh()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.ones(rows, 256, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        loss = model(batch).square().sum()
        loss.backward()
        optimizer.step()

    return step


def looked_at(step: Callable[[], object], workspace_bytes: int = 0) -> Picture:
    with watching_memory(workspace_bytes) as watched:
        watched.step(step)
        watched.step(step)
        picture = watched.explained_step(step, f"{HERE.parent}{os.sep}")
    assert picture is not None
    return picture


def test_a_peak_in_backward_is_sorted_by_what_it_is_for() -> None:
    picture = looked_at(training(1024), workspace_bytes=32 * MIB)
    rows = 1024 * 256 * 4

    assert picture.op == "aten::mul"
    assert picture.site.phase is Phase.BACKWARD
    assert picture.by_role[StorageRole.PARAMETERS] == WEIGHTS
    assert picture.by_role[StorageRole.OPTIMIZER_STATE] == 2 * WEIGHTS + 512
    assert picture.by_role[StorageRole.ACTIVATIONS] == rows + 512
    assert picture.by_role[StorageRole.WORKSPACES] == 64 * MIB
    assert StorageRole.GRADIENTS not in picture.by_role


def test_memory_over_a_step_is_followed_by_purpose() -> None:
    course = looked_at(training(1024)).course

    assert course is not None
    sizes = dict(zip(course.purposes, course.kib, strict=True))
    assert sizes["parameters"] == (WEIGHTS // KIB,)
    assert (sizes["gradients"][0], sizes["gradients"][-1]) == (WEIGHTS // KIB,) * 2
    assert min(sizes["gradients"]) == 0
    assert sizes["activations"][course.peak] == 1024 + 1
    assert [phase for phase, _ in course.phases] == ["forward", "backward"]


def test_a_peak_in_the_optimizer_holds_gradients() -> None:
    model = nn.Linear(256, 256, bias=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    batch = torch.ones(1, 256, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    picture = looked_at(step)

    assert picture.op == "aten::_foreach_sqrt"
    assert picture.site.phase is Phase.OPTIMIZER
    assert picture.by_role[StorageRole.GRADIENTS] == WEIGHTS
    assert picture.by_role[StorageRole.TEMPORARIES] >= WEIGHTS


def test_states_of_cudnn_s_dropout_are_nobody_s_input() -> None:
    layer = nn.LSTM(8, 8, 2, dropout=0.5).cuda()
    rows = torch.ones(3, 2, 8, device="cuda")

    by_role = looked_at(lambda: layer(rows)[0].sum().backward()).by_role
    DROPOUT_STATES.reset()  # later tests look at the same device

    assert by_role[StorageRole.UNSEEN] == 4 * MIB
    assert by_role[StorageRole.INPUTS] < MIB


def test_what_was_taken_in_the_step_is_held_by_a_line() -> None:
    def step() -> None:
        kept = [torch.ones(MIB, device="cuda") for _ in range(3)]
        kept[0] + kept[1]

    picture = looked_at(step)

    made, added = picture.held
    line = step.__code__.co_firstlineno
    assert (made.op, made.per_step, made.held_bytes) == ("aten::ones", 3, 12 * MIB)
    assert (added.op, added.per_step, added.held_bytes) == ("aten::add", 1, 4 * MIB)
    assert made.location is not None
    assert made.location.line == line + 1
    assert added.location is not None
    assert added.location.line == line + 2
    assert Path(made.location.file) == HERE


def test_a_step_unlike_the_last_one_is_not_explained() -> None:
    sizes = iter([1, 1, 2, 3])

    def step() -> None:
        kept = [torch.ones(MIB, device="cuda") for _ in range(next(sizes))]
        kept[0] + 1

    with watching_memory(0) as watched:
        watched.step(step)
        watched.step(step)
        picture = watched.explained_step(step, str(HERE.parent))

    assert picture is None


def measured(
    device: SimulatedDevice, step: Callable[[], object], seconds: float = 1000
) -> Measurement:
    found = audit(device, Subject(step=step), MeasurePlan(test="t", seconds=seconds))
    return found.measurement


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_what_a_step_keeps_for_later_ones_is_held_by_the_line_that_made_it(
    device: SimulatedDevice, steps: int
) -> None:
    kept: list[torch.Tensor] = []

    def step() -> None:
        made = torch.ones(MIB, device="cuda")
        kept.append(made)
        del kept[:-steps], made
        torch.ones(MIB, device="cuda").add(1).add(1)

    found = measured(device, step)

    held = [f for f in found.findings if f.kind is FindingKind.MEMORY]
    line = step.__code__.co_firstlineno + 1
    sizes = {f.location.line: f.held_bytes for f in held if f.location}
    assert sizes[line] == min(steps, 2) * 4 * MIB
    assert found.exact["peak_allocated_bytes"] >= (steps + 2) * 4 * MIB


def waits_of_cache(found: Measurement) -> list[tuple[FindingKind, int]]:
    named = [f for f in found.findings if f.op == "torch.cuda.empty_cache"]
    return [(f.kind, f.per_step) for f in named]


def test_to_empty_the_cache_is_a_wait_if_something_is_cached(
    device: SimulatedDevice,
    monkeypatch: pytest.MonkeyPatch,
    settings_unread: dict[str, str],
) -> None:
    def step() -> None:
        torch.ones(MIB, device="cuda")
        torch.cuda.empty_cache()
        torch.cuda.empty_cache()

    found = measured(device, step)

    assert found.exact["syncs"] == 1
    assert waits_of_cache(found) == [
        (FindingKind.SYNC, 1),
        (FindingKind.INCONCLUSIVE, 1),
    ]

    settings_unread.clear()  # as if the GPU were used first now
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert waits_of_cache(measured(device, step)) == [(FindingKind.INCONCLUSIVE, 1)] * 2


def test_to_empty_a_cache_of_which_all_is_in_use_only_may_wait(
    device: SimulatedDevice,
) -> None:
    weight = torch.ones(4, device="cuda")

    def step() -> None:
        weight.add(1)
        torch.cuda.empty_cache()

    found = measured(device, step)

    assert found.exact["syncs"] == 0
    assert waits_of_cache(found) == [(FindingKind.INCONCLUSIVE, 1)]


def test_a_measurement_has_predictions_and_what_they_are_for(
    device: SimulatedDevice,
) -> None:
    step = training(16)

    found = measured(device, step)

    peaks = [f for f in found.findings if f.kind is FindingKind.PEAK]
    held = [f for f in found.findings if f.kind is FindingKind.MEMORY]
    assert found.exact["growth_bytes"] == 0
    assert found.exact["peak_allocated_bytes"] > 64 * MIB
    assert found.exact["peak_reserved_bytes"] % MIB == 0
    assert [peak.op for peak in peaks] == ["aten::mm"]
    assert peaks[0].reason.startswith("optimizer state ")
    assert held[0].op == "aten::mm"
    assert held[0].held_bytes == WEIGHTS


def test_a_leak_is_the_growth_of_a_step(device: SimulatedDevice) -> None:
    kept = []

    found = measured(device, lambda: kept.append(torch.ones(256, device="cuda")))

    assert found.exact["growth_bytes"] == KIB


def test_what_earlier_steps_returned_is_let_go(device: SimulatedDevice) -> None:
    before = measured(device, lambda: None).exact

    found = measured(device, lambda: torch.ones(MIB, device="cuda"))

    assert before == {}
    assert found.exact["peak_allocated_bytes"] < 5 * MIB


@pytest.mark.usefixtures("settings_unread")
def test_settings_of_the_allocator_leave_a_prediction_unchecked(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

    found = measured(device, training(16))

    assert "peak_allocated_bytes" in found.exact
    assert "peak_reserved_bytes" not in found.exact
    assert found.unmeasured["peak_reserved_bytes"] == (
        "PYTORCH_CUDA_ALLOC_CONF sets expandable_segments:True, and the simulated "
        "allocator has its defaults: unset it, or measure on a GPU"
    )


@pytest.mark.usefixtures("settings_unread")
def test_settings_that_change_sizes_leave_all_predictions_unchecked(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "roundup_power2_divisions:4")

    found = measured(device, training(16))

    assert not any(name.startswith("predicted") for name in found.exact)
    assert found.unmeasured["peak_allocated_bytes"] == (
        "PYTORCH_ALLOC_CONF sets roundup_power2_divisions:4, and the simulated "
        "allocator has its defaults: unset it, or measure on a GPU"
    )


def test_a_cap_that_leaves_no_time_for_memory_is_said(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(device, "now_ns", lambda: next(now))

    found = measured(device, training(16), seconds=6)

    assert "syncs" in found.exact
    assert found.missed == dict.fromkeys(
        [
            "retained_graphs",
            "peak_allocated_bytes",
            "workspace_bytes",
            "peak_reserved_bytes",
            "growth_bytes",
            "garbage_bytes",
        ],
        "the time cap was reached before this phase; raise --gpuperf-seconds",
    )


def test_values_given_up_are_remarked(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BACKING, "has_values", False)
    monkeypatch.setattr(BACKING, "switched", "it runs without values")

    found = measured(device, training(16))

    assert found.remarks == ("it runs without values",)
    assert "peak_allocated_bytes" in found.exact


SEVERAL = """
import sys
sys.path.append({folder!r})
from published_gpt import Savings, Shape, Training
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory
from pytest_gpuperf.measure.emulated import predict_memory
from pytest_gpuperf.measure.step import Subject

with simulated_gpu(".", values=False):
    shape = Shape(layers=2, heads=2, width=64, tokens=16)
    step = Training(shape, Savings(fused_attention=True), batch=4)
    with watching_memory() as memory:
        found = predict_memory(memory, Subject(step=step), ".")
print(sorted(found.exact.items()))
"""


@pytest.mark.slow
def test_predictions_are_the_same_in_three_processes() -> None:
    command = [sys.executable, "-c", SEVERAL.format(folder=str(HERE.parents[1]))]

    told = {
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(3)
    }

    assert len(told) == 1
    assert "peak_reserved_bytes" in told.pop()


def summed(keep: Callable[[Any], Any]) -> Callable[[], object]:
    """A step that adds its loss to a total, as *keep* has it."""
    model, log = (
        nn.Linear(64, 64, device="cuda"),
        {"total": torch.zeros((), device="cuda")},
    )

    def step() -> None:
        loss = model(torch.ones(8, 64, device="cuda")).square().mean()
        loss.backward()
        log["total"] = log["total"] + keep(loss)
        model.zero_grad()

    return step


def centred(keep: Callable[[Any], Any]) -> Callable[[], None]:
    """Return a step with a long graph, of which only a moving mean keeps a part."""
    layer = nn.Linear(64, 64, device="cuda")
    log = {"mean": torch.zeros(64, device="cuda")}

    def step() -> None:
        rows = layer(torch.ones(8, 64, device="cuda"))
        mean = rows.mean(0)
        log["mean"] = log["mean"].lerp(keep(mean), 0.1)
        rows = rows - mean
        for _ in range(30):
            rows = rows.tanh()
        log["loss"] = rows.sum()
        log["loss"].backward()
        layer.zero_grad()

    return step


def test_a_moving_mean_that_keeps_graphs_is_named_and_no_longer_loss(
    device: SimulatedDevice,
) -> None:
    kept = measured(device, centred(lambda mean: mean))
    detached = measured(device, centred(lambda mean: mean.detach()))

    (said,) = (s for s in kept.remarks if "keeps a graph" in s)
    line = 1 + HERE.read_text().split('log["mean"].lerp(keep')[0].count("\n")
    assert f"from line {line} of" in said
    assert not any("keeps a graph" in s for s in detached.remarks)


def test_a_total_that_keeps_every_graph_has_its_line(device: SimulatedDevice) -> None:
    kept = measured(device, summed(lambda loss: loss))
    detached = measured(device, summed(lambda loss: loss.detach()))

    (said,) = (s for s in kept.remarks if "keeps a graph" in s)
    line = 1 + HERE.read_text().split('log["total"] + keep')[0].count("\n")
    assert said == (
        "every step keeps a graph of autograd alive, from line "
        f"{line} of test_memory_picture.py: detach() what is kept"
    )
    assert (kept.exact["retained_graphs"], kept.exact["growth_bytes"]) == (1, 0)
    assert not any("keeps a graph" in s for s in detached.remarks)
