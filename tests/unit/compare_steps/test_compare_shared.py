"""Two sides that share state: refused where one of them changes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_gpuperf.compare_steps import isolation as shared
from pytest_gpuperf.compare_steps.isolation import Pair
from pytest_gpuperf.compare_steps.same_training import begin
from pytest_gpuperf.errors import StepError
from pytest_gpuperf.measure.step import Subject


torch = pytest.importorskip("torch")


def start(before: Callable[[], object], after: Callable[[], object]) -> object:
    return begin(Pair(before=Subject(step=before), after=Subject(step=after)))


def test_each_side_runs_once() -> None:
    played: list[str] = []

    start(lambda: played.append("before"), lambda: played.append("after"))

    assert played == ["before", "after"]


def test_a_batch_that_both_read_is_theirs_to_share() -> None:
    batch = torch.tensor([1.0, float("nan")])

    assert start(lambda: batch * 2, lambda: batch + batch) is None


@pytest.mark.parametrize("changes", ["before", "after"])
def test_a_tensor_that_one_side_changes_is_named(changes: str) -> None:
    weights = torch.ones(2)

    def change() -> object:
        return weights.add_(1)

    def read() -> object:
        return weights * 2

    sides = (change, read) if changes == "before" else (read, change)
    other = "after" if changes == "before" else "before"

    with pytest.raises(StepError) as refused:
        start(*sides)

    assert str(refused.value) == (
        f"gpuperf.compare(before, after): {changes} changes weights, which {other} uses "
        "as well, so that neither is measured by itself; give each side its own, and "
        "build model and optimizer twice [GP713]"
    )


def test_a_model_trained_by_both_sides_is_refused() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    with pytest.raises(StepError, match="GP713"):
        start(step, step)


def test_views_of_one_memory_are_shared_and_so_are_writes_past_autograd() -> None:
    whole = torch.zeros(4)
    first, everything = whole[:2], whole[:]

    def change() -> None:
        first.data.fill_(1)

    with pytest.raises(StepError, match="before changes everything, which after uses"):
        start(change, lambda: everything * 2)


@pytest.mark.parametrize("keys", [(0, 1), ("small", "large")])
def test_two_models_in_one_list_or_dict_are_said_to_be_one_thing_of_both(
    keys: tuple[object, object],
) -> None:
    made = {key: torch.nn.Linear(2, 1) for key in keys}
    models = made if "small" in keys else [*made.values()]
    first, second = keys

    with pytest.raises(StepError) as refused:
        start(lambda: models[first].weight.data.add_(1), lambda: models[second].weight)

    assert f"changes models.{first}.weight" in str(refused.value)
    assert "; all in models counts, as both name it" in (str(refused.value))


def test_a_large_tensor_is_watched_by_the_counter_of_its_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "MOST_STATE_BYTES", 4)
    weights = torch.ones(2)

    assert start(lambda: weights * 2, lambda: weights * 3) is None
    with pytest.raises(StepError, match="after changes weights, which before uses"):
        start(lambda: weights * 2, lambda: weights.mul_(1))


def test_tensors_without_memory_of_their_own_are_left_out() -> None:
    empty, meta = torch.empty(0), torch.ones(2, device="meta")
    sparse = torch.eye(2).to_sparse()

    def step() -> object:
        return empty, meta, sparse

    assert start(step, step) is None
