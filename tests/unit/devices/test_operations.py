"""The operations of a step, by module and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


torch = pytest.importorskip("torch")

from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_gpuperf.devices.operations import operations_of_step
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.judge.operations import fitted
from pytest_gpuperf.model.finding import CALLED, LineWork


ROOT = str(Path(__file__).parent)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return torch.relu(y.t())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x)


def work_of(
    step: Callable[[], object],
) -> dict[tuple[str, str], dict[str, tuple[int, int]]]:
    return by_place(operations_of_step(step, (), ROOT))


def by_place(
    lines: tuple[LineWork, ...],
) -> dict[tuple[str, str], dict[str, tuple[int, int]]]:
    return {
        (w.module, w.location.function if w.location else ""): dict(w.ops)
        for w in fitted(lines)
    }


def test_an_operation_belongs_to_its_module_line_and_bytes() -> None:
    net, x = Net(), torch.ones(2, 4)

    found = work_of(lambda: net(x))

    assert found["Net.layers.0.linear", "forward"] == {"aten::addmm": (1, 32)}
    assert found["Net.layers.0", "forward"] == {"aten::relu": (1, 32)}


def test_a_backward_belongs_to_the_line_of_its_forward_and_a_view_has_one() -> None:
    net, x = Net(), torch.ones(2, 4)

    found = work_of(lambda: net(x).sum().backward())

    assert "aten::mm (backward)" in found["Net.layers.0.linear", "forward"]
    assert "aten::threshold_backward (backward)" in found["Net.layers.0", "forward"]


def test_what_a_line_calls_is_apart() -> None:
    net, x = Net(), torch.ones(2, 4)

    def step() -> torch.Tensor:
        return net(x)

    assert work_of(step)[CALLED, "step"] == {CALLED: (2, 64)}


def test_what_is_run_again_in_a_backward_belongs_to_its_own_line() -> None:
    net, x = Net(), torch.ones(2, 4, requires_grad=True)

    def step() -> None:
        checkpoint(net.layers[0], x, use_reentrant=False).sum().backward()

    found = work_of(step)

    ops = {name: n for name, (n, _) in found["Block.linear", "forward"].items()}
    assert (ops["aten::addmm"], ops["aten::addmm (backward)"]) == (1, 1)


def test_a_line_outside_of_the_project_is_named_next_to_the_users() -> None:
    net, x = Net(), torch.ones(2, 4)

    lines = operations_of_step(lambda: net(x), (), "/elsewhere")

    assert {w.location.function for w in lines if w.location} == {"forward"}
    assert {w.innermost for w in lines} == {None}


def test_no_module_is_followed_once_the_step_is_over() -> None:
    hooks = torch.nn.modules.module._global_forward_pre_hooks

    with pytest.raises(ValueError, match="no"):
        operations_of_step(fails, (), ROOT)

    assert not hooks


def fails() -> None:
    msg = "no"
    raise ValueError(msg)


@contextmanager
def simulating() -> Iterator[SimulatedDevice]:
    device = SimulatedDevice(root=ROOT)
    device.enter()
    try:
        yield device
    finally:
        device.leave()


def test_the_simulated_gpu_counts_the_same_in_the_step_that_locates_work() -> None:
    with simulating() as device:
        net, x = Net().to("cuda"), torch.ones(2, 4, device="cuda")
        located, _ = device.audit(lambda: net(x).sum().backward(), (), locate_work=True)
        other, _ = device.audit(lambda: net(x), ())

    found = by_place(located.operations)
    assert found["Net.layers.0.linear", "forward"]["aten::addmm"] == (1, 32)
    counted = sum(w.count for w in located.operations if w.module != CALLED)
    assert counted == located.totals.counts["launches"]
    assert other.operations == ()
