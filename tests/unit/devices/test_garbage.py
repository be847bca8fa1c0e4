"""Memory that only the garbage collector frees: how much, from which line, and what keeps it."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn

from pytest_gpuperf.devices.garbage import held_collector
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory
from pytest_gpuperf.measure.emulated import predict_memory
from pytest_gpuperf.measure.plan import Found
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import Finding, FindingKind
from pytest_gpuperf.report.remedies import GARBAGE_REMEDIES, remedy_of


MIB = 2**20
HERE = Path(__file__)

Step = Callable[[], object]


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[SimulatedDevice]:
    simulated = SimulatedDevice(str(HERE.parent))
    simulated.enter()
    # As in the processes that measure: each collection would look at all of torch.
    gc.freeze()
    yield simulated
    gc.unfreeze()
    simulated.leave()


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)


def measured(step: Step) -> Found:
    with watching_memory(0) as memory:
        memory.step(step)
        return predict_memory(memory, Subject(step=step), f"{HERE.parent}{os.sep}")


def garbage(found: Found) -> int:
    return found.exact["garbage_bytes"]


def blamed(found: Found) -> list[Finding]:
    return [f for f in found.findings if f.kind is FindingKind.GARBAGE]


def big() -> Any:
    return torch.ones(2**18, device="cuda")


class Node:
    other: object


# Steps with a cycle, by what keeps 1 MiB of each.


def two_objects() -> None:
    a, b = Node(), Node()
    a.other, b.other = b, a
    a.tensor = big()  # type: ignore[attr-defined]


def stored_exception() -> None:
    kept = []
    tensor = big()
    try:
        len(tensor) / 0
    except ZeroDivisionError as error:
        kept.append(error)


def recursive_function() -> None:
    tensor = big()

    def inner(depth: int) -> object:
        return tensor if depth == 0 else inner(depth - 1)

    inner(2)


def hook_of_a_tensor() -> None:
    tensor = big().requires_grad_()
    tensor.register_hook(lambda gradient: gradient * tensor)


def generator() -> None:
    def parts() -> Iterator[object]:
        me = kept[0]  # noqa: F841, the cycle
        yield big()

    kept: list[object] = []
    kept.append(parts())
    kept.append(next(kept[0]))  # type: ignore[call-overload]


def module_that_knows_its_parent() -> None:
    parent, child = nn.Module(), nn.Module()
    parent.child = child
    child.__dict__["parent"] = parent
    child.weight = nn.Parameter(big())


class KeepsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Any) -> Any:
        ctx.output = big()
        return ctx.output


class KeepsOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Any) -> Any:
        output = big()
        ctx.cache = {"outputs": [output]}
        return output


def output_of_a_function() -> None:
    KeepsOutput.apply(torch.ones((), requires_grad=True))


def outputs_in_a_cache() -> None:
    KeepsOutputs.apply(torch.ones((), requires_grad=True))


CYCLES = {
    output_of_a_function: "torch KeepsOutputBackward.output",
    outputs_in_a_cache: "torch KeepsOutputsBackward.cache",
    two_objects: "Node.other -> Node.other",
    stored_exception: "variable kept of stored_exception -> ZeroDivisionError -> its traceback",
    recursive_function: "function recursive_function.<locals>.inner",
    hook_of_a_tensor: "function hook_of_a_tensor.<locals>.<lambda>",
    generator: "",  # Python closes it before anybody can look
    module_that_knows_its_parent: "torch Module.parent",
}


@pytest.mark.parametrize("step", CYCLES)
def test_what_only_the_collector_frees_is_counted_with_its_line(step: Step) -> None:
    found = measured(step)

    (finding, *_) = blamed(found)
    assert garbage(found) == MIB
    assert found.exact["growth_bytes"] == 0
    assert finding.location
    assert finding.held_bytes == MIB
    assert finding.location.function == "big"
    assert CYCLES[step] in finding.reason
    assert remedy_of(finding)


# What is advised, executed.


def text_of_an_exception() -> None:
    kept = []
    tensor = big()
    try:
        len(tensor) / 0
    except ZeroDivisionError as error:
        kept.append(str(error))


def descend(tensor: Any, depth: int) -> Any:
    return tensor if depth == 0 else descend(tensor, depth - 1)


def function_of_the_module() -> None:
    descend(big(), 2)


def weak_way_back() -> None:
    a, b = Node(), Node()
    a.other, b.other = b, weakref.ref(a)
    a.tensor = big()  # type: ignore[attr-defined]


def broken_cycle() -> None:
    a, b = Node(), Node()
    a.other, b.other = b, a
    a.tensor = big()  # type: ignore[attr-defined]
    a.other = None


class SavesOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Any) -> Any:
        output = big()
        ctx.save_for_backward(output)
        return output


def saved_output() -> None:
    SavesOutput.apply(torch.ones((), requires_grad=True))


REMEDIED = [
    (stored_exception, (text_of_an_exception,)),
    (recursive_function, (function_of_the_module,)),
    (output_of_a_function, (saved_output,)),
    (two_objects, (weak_way_back, broken_cycle)),
]


def test_each_fix_leaves_nothing_to_the_collector() -> None:
    advised = []
    for before, after in REMEDIED:
        (finding, *_) = blamed(measured(before))
        advised.append(remedy_of(finding))
        assert [garbage(measured(step)) for step in after] == [0] * len(after)

    assert advised == list(GARBAGE_REMEDIES)


# Steps of which nothing is left to the collector.


def training(optimizer: str = "AdamW", **options: object) -> Step:
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(), nn.GELU(), nn.Linear(64, 64))
    model.cuda()
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3, **options)

    def step() -> object:
        def closure() -> object:
            update.zero_grad()
            loss = model(torch.ones(256, 64, device="cuda")).square().mean()
            loss.backward()
            return loss

        update.step(closure)
        return closure()

    return step


def checkpointed() -> Step:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Linear(64, 64).cuda()

    def step() -> None:
        inputs = torch.ones(256, 64, device="cuda", requires_grad=True)
        for reentrant in (False, True):
            checkpoint(layer, inputs, use_reentrant=reentrant).sum().backward()

    return step


def caught() -> None:
    tensor = big()
    try:
        len(tensor) / 0
    except ZeroDivisionError as error:
        str(error)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: Any) -> Any:
        result = tensor * 2
        context.save_for_backward(result)
        return result

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        (result,) = context.saved_tensors
        return gradient * result


def of_a_function() -> None:
    Scaled.apply(big().requires_grad_()).sum().backward()


def loaded() -> Step:
    data = torch.utils.data.TensorDataset(torch.ones(64, 2**12))

    def step() -> None:
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=16):
            batch.cuda().sum()

    return step


def compiled() -> Step:
    return torch.compile(training())


def making_an_optimizer() -> None:
    training()()


def twice_differentiated() -> None:
    weight = big().requires_grad_()
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    gradient.sum().backward()


CLEAN: dict[str, Callable[[], Step]] = {
    "AdamW": training,
    "SGD": lambda: training("SGD", momentum=0.9),
    "LBFGS": lambda: training("LBFGS", max_iter=2),
    "checkpoints": checkpointed,
    "an exception that is caught": lambda: caught,
    "an autograd function": lambda: of_a_function,
    "a loader": loaded,
    "torch.compile": compiled,
    "a second derivative": lambda: twice_differentiated,
    "an optimizer made in the step": lambda: making_an_optimizer,
}


@pytest.mark.parametrize("make", CLEAN.values(), ids=CLEAN)
def test_code_without_cycles_leaves_no_garbage(make: Callable[[], Step]) -> None:
    found = measured(make())

    assert garbage(found) == 0
    assert blamed(found) == []


def collecting_at_its_start() -> None:
    gc.collect()
    two_objects()


def collecting_at_its_end() -> None:
    two_objects()
    gc.collect()


@pytest.mark.parametrize("step", [collecting_at_its_start, collecting_at_its_end])
def test_a_step_that_runs_the_collector_itself_lets_nothing_pile_up(step: Step) -> None:
    found = measured(step)

    assert garbage(found) == 0
    assert blamed(found) == []


@pytest.mark.parametrize("switch_off", [gc.disable, lambda: gc.set_threshold(0)])
def test_without_a_collector_the_peak_is_that_of_all_steps(
    switch_off: Callable[[], object],
) -> None:
    with_it = measured(two_objects)
    switch_off()
    state = gc.isenabled(), gc.get_threshold()

    found = measured(two_objects)

    assert (gc.isenabled(), gc.get_threshold()) == state
    peak = "peak_allocated_bytes"
    assert found.exact[peak] == with_it.exact[peak] + 2 * MIB
    assert found.exact["growth_bytes"] == MIB
    assert garbage(found) == MIB


def test_a_step_that_switches_the_collector_off_has_switched_it_off() -> None:
    def step() -> None:
        gc.disable()
        two_objects()

    found = measured(step)

    assert not gc.isenabled()
    assert garbage(found) == MIB
    assert found.exact["growth_bytes"] == MIB


def test_frozen_objects_change_nothing() -> None:
    weight = big().requires_grad_()
    gc.freeze()

    def step() -> None:
        (weight * 2).sum().backward()
        two_objects()

    found = measured(step)

    assert garbage(found) == MIB
    assert found.exact["growth_bytes"] == 0


def test_the_collector_is_as_it_was_afterwards() -> None:
    gc.set_threshold(123, 7, 3)
    known = len(gc.callbacks)

    with held_collector() as collector:
        assert not collector.is_off
        gc.set_threshold(99)
        collector.begin_step()
        gc.disable()
        assert collector.is_off

    assert gc.get_threshold() == (99, 7, 3)
    assert not gc.isenabled()
    assert len(gc.callbacks) == known
