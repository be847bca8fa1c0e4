"""Which tensors a step can reach, and by which name."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from types import SimpleNamespace

import pytest

from pytest_gpuperf.compare_steps import isolation as reach
from pytest_gpuperf.compare_steps.isolation import addresses_of, tensors_of


torch = pytest.importorskip("torch")

ONES = torch.ones(3)


class Slotted:
    __slots__ = ("unset", "weight")

    def __init__(self) -> None:
        self.weight = ONES


class Trainer:
    def __init__(self) -> None:
        self.held = ONES

    def step(self) -> None:
        pass


def names(step: object) -> list[str]:
    return sorted(tensors_of(step))


def test_a_closure_has_the_names_of_its_variables() -> None:
    batch, unused = torch.ones(2), torch.ones(2)

    def step() -> object:
        return batch * 2

    assert names(step) == ["batch"]
    assert tensors_of(step)["batch"] is batch
    assert unused is not batch


def test_globals_are_reached_where_the_code_names_them_also_in_functions_inside() -> (
    None
):
    def step() -> object:
        return [ONES * number for number in range(2)]

    assert names(step) == ["ONES"]


def test_defaults_partial_arguments_and_methods_are_reached() -> None:
    def step(scale: object = ONES) -> object:
        return scale

    assert names(step) == ["0"]
    assert names(partial(print, ONES, end=torch.ones(2))) == ["0", "end"]
    assert names(Trainer().step) == ["held"]


def test_containers_and_objects_give_the_way_that_leads_there() -> None:
    state = SimpleNamespace(
        listed=[ONES.clone()],
        ordered=OrderedDict(weight=ONES.clone()),
        nested=SimpleNamespace(inner=(ONES.clone(),)),
        slotted=Slotted(),
    )

    assert names(lambda: state) == [
        "state.listed.0",
        "state.nested.inner.0",
        "state.ordered.weight",
        "state.slotted.weight",
    ]


def test_a_module_has_its_own_names_and_an_optimizer_shows_its_state() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()

    assert names(lambda: model) == [
        "model.0.bias",
        "model.0.weight",
        "model.1.bias",
        "model.1.num_batches_tracked",
        "model.1.running_mean",
        "model.1.running_var",
        "model.1.weight",
    ]
    assert "optimizer.state.momentum_buffer" in names(lambda: optimizer)


def test_a_cycle_and_a_variable_that_is_not_assigned_yet_are_no_trouble() -> None:
    def step() -> object:
        return later, circle

    circle: list[object] = [ONES]
    circle.append(circle)

    assert names(step) == ["circle.0"]

    later = 1


def test_the_insides_of_libraries_and_of_pytest_are_left_alone(
    request: pytest.FixtureRequest,
) -> None:
    step = partial(torch.nn.functional.relu, request)

    assert names(step) == []


def test_what_lies_beyond_the_most_objects_stays_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "MOST_OBJECTS", 5)
    nested: object = ONES
    for _ in range(10):
        nested = [nested]

    assert names(lambda: nested) == []


def test_memory_is_found_by_every_way_and_behind_gradients() -> None:
    """Both momenta have one name: an optimizer keeps its state by tensor."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    kept = [
        *model.parameters(),
        *(parameter.grad for parameter in model.parameters()),
        *(state["momentum_buffer"] for state in optimizer.state.values()),
    ]
    batch, hidden = torch.ones(8), model(torch.ones(1, 2))

    found = addresses_of(lambda: optimizer, lambda: (batch[2:], hidden), None)

    assert found == {
        tensor.untyped_storage().data_ptr() for tensor in (*kept, batch, hidden)
    }
