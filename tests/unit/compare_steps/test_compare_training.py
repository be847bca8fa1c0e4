"""Do both sides train the same? Real steps on the host, in a few milliseconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pytest_gpuperf.compare_steps.isolation import Pair
from pytest_gpuperf.compare_steps.isolation import begin
from pytest_gpuperf.errors import StepError
from pytest_gpuperf.measure.step import Subject


torch = pytest.importorskip("torch")

REFUSED = "gpuperf.compare(before, after, same_training=True): "

Step = Callable[..., object]


def build(seed: int = 0, lr: float = 0.1, kind: Any = None) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
    )
    return model, (kind or torch.optim.SGD)(model.parameters(), lr=lr)


def batch() -> tuple[Any, Any]:
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(12, 8, generator=drawn)
    return x, torch.randint(3, (12,), generator=drawn)


def loss_of(model: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(x), y)


def whole(**built: Any) -> Step:
    model, optimizer = build(**built)
    x, y = batch()

    def step() -> object:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def accumulated(
    *, zero_grad_inside: bool = False, micro_scale: float = 0.5, **built: Any
) -> Step:
    """Two micro-batches; the published one forgets the gradients of the first."""
    model, optimizer = build(**built)
    x, y = batch()

    def step() -> object:
        total = torch.zeros(())
        optimizer.zero_grad()
        for rows in (slice(0, 6), slice(6, 12)):
            loss = loss_of(model, x[rows], y[rows])
            if zero_grad_inside:
                optimizer.zero_grad()
            (micro_scale * loss).backward()
            total += loss.detach() / 2
        optimizer.step()
        return total

    return step


def check(
    before: Step,
    after: Step,
    *,
    setup: Callable[[], object] | None = None,
    tolerance: float = 0.01,
) -> str:
    pair = Pair(
        before=Subject(step=before, setup=setup),
        after=Subject(step=after, setup=setup),
        training=tolerance,
    )
    return begin(pair)


def refusal(before: Step, after: Step, **question: Any) -> str:
    with pytest.raises(StepError) as refused:
        check(before, after, **question)
    message = refused.value.text
    assert message.startswith(REFUSED)
    return message.removeprefix(REFUSED)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_micro_batches_that_are_added_up_train_the_same(kind: Any) -> None:
    said = check(whole(kind=kind), accumulated(kind=kind))

    assert said == (
        "what the steps return and the gradients of 4 tensors agree "
        "within 1 % over 3 steps"
    )


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_gradients_that_are_zeroed_between_micro_batches_are_caught(kind: Any) -> None:
    """The loss of the first step is right: only the gradients tell."""
    said = refusal(
        whole(kind=kind),
        accumulated(kind=kind, zero_grad_inside=True, micro_scale=1.0),
    )

    name, percent = said.removeprefix(
        "the training differs: in step 1 the gradient of "
    ).split(" differs by ", 1)
    assert name.startswith("model.")
    assert percent.endswith(" %; 1 % is tolerated")
    assert float(percent.partition(" ")[0]) > 40


def test_a_loss_that_is_not_scaled_shows_although_adam_does_not_mind() -> None:
    said = refusal(
        whole(kind=torch.optim.AdamW),
        accumulated(kind=torch.optim.AdamW, micro_scale=1.0),
    )

    assert said.startswith("the training differs: in step 1 the gradient of model.")
    assert said.endswith(" differs by 50 %; 1 % is tolerated")


def test_another_learning_rate_shows_in_the_way_of_the_parameters() -> None:
    said = refusal(whole(lr=0.001), whole(lr=0.0005))

    assert said.startswith("the training differs: over 3 steps the movement of model.")
    assert said.endswith(" differs by 50 %; 10 % is tolerated")


def test_a_loss_that_differs_is_shown_with_its_values() -> None:
    x = torch.ones(2, requires_grad=True)
    y = torch.ones(2, requires_grad=True)

    def train(weights: Any, loss: float) -> Step:
        def step() -> object:
            weights.grad = None
            weights.sum().backward()
            return loss

        return step

    assert refusal(train(x, 2.0), train(y, 3.0)) == (
        "the training differs: in step 1 what the step returns differs by 33.3 % (2 "
        "before, 3 after); 1 % is tolerated"
    )
    assert refusal(train(x, 2.0), train(y, float("nan"))) == (
        "the training differs: in step 1 what the step returns is NaN (2 before, nan "
        "after); 1 % is tolerated"
    )
    assert check(train(x, 2.0), train(y, 2.05), tolerance=0.03) == (
        "what the steps return and the gradients of 1 tensor agree "
        "within 3 % over 3 steps"
    )


def test_tensors_trained_without_an_optimizer_are_found_in_what_the_step_holds() -> (
    None
):
    def by_hand(rate: float) -> Step:
        weights = torch.ones(3, requires_grad=True)

        def step() -> None:
            weights.grad = None
            (weights**2).sum().backward()
            with torch.no_grad():
                weights.sub_(rate * weights.grad)

        return step

    assert check(by_hand(0.1), by_hand(0.1)) == (
        "the gradients of 1 tensor agree within 1 % over 3 steps"
    )
    assert refusal(by_hand(0.1), by_hand(0.2)).startswith(
        "the training differs: in step 2 the gradient of weights differs by 25 %"
    )


def test_sides_that_do_not_start_alike_cannot_be_checked() -> None:
    said = refusal(whole(seed=0), whole(seed=1))

    assert said.startswith("it cannot be checked: the sides do not start alike, model.")
    assert said.endswith(
        " %; build both from the same seed, or load the state_dict of one into the other"
    )


def test_a_side_that_trains_nothing_cannot_be_checked() -> None:
    x = torch.ones(3)

    assert refusal(lambda: x + x, whole()) == (
        "the training differs: before makes 0 optimizer steps in a step, after makes 1"
    )
    assert refusal(lambda: x + x, lambda: 2 * x) == (
        "it cannot be checked: nothing that before trains was found, no optimizer of "
        "torch.optim made a step, and its step has no tensor with a gradient; make the "
        "tensors variables of the step, or leave it out"
    )


def test_other_parameters_cannot_be_compared() -> None:
    def training(*shapes: tuple[int, ...]) -> Step:
        weights = [torch.ones(shape, requires_grad=True) for shape in shapes]
        optimizer = torch.optim.SGD(weights, lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            torch.stack([one.sum() for one in weights]).sum().backward()
            optimizer.step()

        return step

    assert refusal(training((2,)), training((2,), (3,))) == (
        "it cannot be checked: before trains 1 tensor, after trains 2"
    )
    assert refusal(training((2, 3)), training((3, 2))) == (
        "it cannot be checked: weights.0 of before has the shape (2, 3), weights.0 of "
        "after the shape (3, 2)"
    )


def test_results_that_cannot_be_compared_are_refused() -> None:
    def returning(result: object) -> Step:
        step = whole()

        def returned() -> object:
            step()
            return result

        return returned

    assert refusal(returning(1.0), returning(None)) == (
        "it cannot be checked: before returns 1 number, after returns None; let both "
        "return their loss, or neither"
    )
    assert refusal(returning({"a": [1, 2]}), returning("loss")) == (
        "it cannot be checked: before returns 2 numbers, after returns a str; let both "
        "return their loss, or neither"
    )
    assert check(returning(None), returning("told")) == (
        "the gradients of 4 tensors agree within 1 % over 3 steps"
    )


def test_parameters_are_matched_by_name_where_their_order_differs() -> None:
    def training(*, reverse: bool) -> Step:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        parameters = list(model.parameters())
        optimizer = torch.optim.SGD(parameters[:: -1 if reverse else 1], lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()

        return step

    assert check(training(reverse=False), training(reverse=True)) == (
        "the gradients of 4 tensors agree within 1 % over 3 steps"
    )


def test_both_sides_get_the_same_arguments_and_random_numbers() -> None:
    drawn: list[list[float]] = [[], []]

    def training(notes: list[float]) -> Callable[[Any], object]:
        weights = torch.ones(2, requires_grad=True)

        def step(x: Any) -> object:
            weights.grad = None
            loss = (weights * x).sum() + torch.rand(())
            loss.backward()
            notes.append(random.random())  # noqa: S311 - noise, no secret
            notes.append(float(x.sum()))
            x.zero_()
            return loss.detach()

        return step

    state = torch.get_rng_state()
    said = check(training(drawn[0]), training(drawn[1]), setup=lambda: torch.randn(2))

    assert said.startswith("what the steps return and ")
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 6
    assert state.numel() == torch.get_rng_state().numel()


def test_a_model_that_both_train_is_refused_as_shared_and_not_as_different() -> None:
    step = whole()
    pair = Pair(before=Subject(step=step), after=Subject(step=step), training=0.01)

    with pytest.raises(StepError, match="GP713"):
        begin(pair)


def test_the_hook_is_gone_when_a_step_raises() -> None:
    from torch.optim import optimizer

    before = len(optimizer._global_optimizer_pre_hooks)

    with pytest.raises(ZeroDivisionError):
        check(lambda: 1 / 0, whole())

    assert len(optimizer._global_optimizer_pre_hooks) == before
