"""A clean step has no findings, whatever the optimizer; those that read values are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.model.finding import Phase


pytestmark = pytest.mark.filterwarnings("ignore")

READERS: Final = frozenset({"ASGD", "Adafactor", "LBFGS", "SparseAdam"})
"""Optimizers that read values of device tensors, as their sources say."""


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu() as entered:
        yield entered


def optimizers() -> dict[str, Any]:
    return {
        name: kind
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    }


def variants() -> Iterator[tuple[str, dict[str, bool]]]:
    choices = [
        {},
        {"foreach": True},
        {"foreach": False},
        {"fused": True},
        {"capturable": True},
        {"capturable": True, "foreach": False},
    ]
    for name, kind in optimizers().items():
        known = inspect.signature(kind).parameters
        for choice in choices:
            if known.keys() >= choice.keys():
                yield name, choice


def is_clean(name: str, choice: dict[str, bool]) -> bool:
    return name not in READERS or (name == "ASGD" and "capturable" in choice)


def training(name: str, choice: dict[str, bool]) -> Callable[[], None]:
    layer = torch.nn.Linear(4, 3, bias=name != "Muon")
    model = torch.nn.Sequential(layer, torch.nn.Tanh()).cuda()
    optimizer = optimizers()[name](model.parameters(), lr=0.1, **choice)
    batch = torch.ones(2, 4, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        optimizer.step()

    return step


def second_step(gpu: SimulatedGpu, step: Callable[[], None]) -> StepAudit:
    step()
    gpu.begin_step()
    step()
    return gpu.end_step()


@pytest.mark.parametrize(
    ("name", "choice"), [pair for pair in variants() if is_clean(*pair)]
)
def test_a_clean_step_has_no_findings(
    gpu: SimulatedGpu, name: str, choice: dict[str, bool]
) -> None:
    audit = second_step(gpu, training(name, choice))

    assert audit.findings == ()
    assert audit.copies == ()
    assert audit.not_checked == ()
    assert audit.totals.counts["launches"] > 10


@pytest.mark.parametrize("foreach", [True, False])
def test_adafactor_reads_two_norms_a_parameter_and_the_least_of_them(
    gpu: SimulatedGpu, *, foreach: bool
) -> None:
    audit = second_step(gpu, training("Adafactor", {"foreach": foreach}))

    assert audit.totals.syncs == 2 * 2
    assert {f.phase for f in audit.findings} == {Phase.OPTIMIZER}


def test_asgd_keeps_its_scalars_on_the_device_and_reads_them(gpu: SimulatedGpu) -> None:
    audit = second_step(gpu, training("ASGD", {"foreach": False}))

    assert audit.totals.syncs > 0
    assert {f.phase for f in audit.findings} == {Phase.OPTIMIZER}


def test_an_optimizer_of_ones_own_is_one(gpu: SimulatedGpu) -> None:
    class Careless(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            for parameter in self.param_groups[0]["params"]:
                parameter.grad.norm().item()

    model = torch.nn.Linear(2, 2, bias=False).cuda()
    optimizer = Careless(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        optimizer.step()

    (finding,) = second_step(gpu, step).findings

    assert finding.phase is Phase.OPTIMIZER
    assert finding.location is not None
    assert finding.location.function == "step"


def test_a_closure_is_forward_although_the_optimizer_calls_it(
    gpu: SimulatedGpu,
) -> None:
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> Any:
        loss = model(torch.ones(1, 2, device="cuda")).sum()
        loss.item()
        loss.backward()
        return loss

    (finding,) = second_step(gpu, lambda: optimizer.step(closure)).findings

    assert finding.phase is Phase.FORWARD


def test_a_scaler_reads_whether_gradients_are_finite_once_a_step(
    gpu: SimulatedGpu,
) -> None:
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(torch.ones(1, 2, device="cuda")).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    audit = second_step(gpu, step)

    assert [(f.op, f.per_step, f.phase) for f in audit.findings] == [
        ("aten::_local_scalar_dense", 1, Phase.OPTIMIZER)
    ]
