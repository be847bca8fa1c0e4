"""Do both sides train the same? Real steps on the host, in a few milliseconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from pytest_gpuperf.compare_steps.isolation import Pair
from pytest_gpuperf.compare_steps.same_training import begin
from pytest_gpuperf.errors import StepError
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.ab import TrainingAnswer


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
    found = begin(pair)
    assert found is not None
    assert found.answer is TrainingAnswer.SAME
    return found.text


def refusal(before: Step, after: Step, **question: Any) -> str:
    with pytest.raises(StepError) as refused:
        check(before, after, **question)
    message = refused.value.text
    assert message.startswith(REFUSED)
    return message.removeprefix(REFUSED)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_micro_batches_that_are_added_up_train_the_same(kind: Any) -> None:
    said = check(whole(kind=kind), accumulated(kind=kind))

    assert said.startswith(
        "returned numbers, gradients and movement of 4 tensors agree within "
    )
    assert said.endswith(" % over 3 steps")


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_gradients_that_are_zeroed_between_micro_batches_are_caught(kind: Any) -> None:
    """The loss of the first step is right: only the gradients tell."""
    said = refusal(
        whole(kind=kind), accumulated(kind=kind, zero_grad_inside=True, micro_scale=1.0)
    )

    name, percent = said.removeprefix("the training differs: gradient of ").split(
        " in step 1: ", 1
    )
    assert name in {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert percent.endswith(" % apart, tolerated 1 %")
    assert float(percent.partition(" ")[0]) > 40


def test_parameters_that_go_another_way_by_the_same_gradients_are_caught() -> None:
    def training(*, twice: bool) -> Step:
        model, optimizer = build(lr=0.001)
        x, y = batch()

        def step() -> None:
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            start = [parameter.detach().clone() for parameter in model.parameters()]
            optimizer.register_step_post_hook(
                lambda *_: further(model, start) if twice else None
            )
            optimizer.step()

        return step

    def further(model: Any, start: Any) -> None:
        with torch.no_grad():
            for parameter, then in zip(model.parameters(), start, strict=True):
                parameter.add_(parameter - then)

    said = refusal(training(twice=False), training(twice=True))

    assert said.startswith("the training differs: movement of 0.weight in step 1: ")


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
        "the training differs: the result of step 1: 33.3 % apart (2 before, 3 "
        "after), tolerated 1 %"
    )
    assert refusal(train(x, 2.0), train(y, nan)) == (
        "the training differs: the result of step 1 is NaN or infinite on one side"
    )
    assert refusal(train(x, nan), train(y, nan)) == (
        "it cannot be checked: both sides train NaN or infinite numbers"
    )
    assert check(train(x, 2.0), train(y, 2.05), tolerance=0.03) == (
        "returned numbers, gradients and movement of 1 tensor agree within 2.44 % over "
        "3 steps"
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
        "gradients and movement of 1 tensor agree in every digit over 3 steps"
    )
    assert refusal(by_hand(0.1), by_hand(0.2)).startswith(
        "the training differs: loss of step 2: 43.8 % apart (1.92 before, 1.08 after)"
    )


def test_sides_that_do_not_start_alike_cannot_be_checked() -> None:
    said = refusal(whole(seed=0), whole(seed=1))

    assert said.startswith("the training differs: 0.weight at the start of step 1: ")


def test_a_side_that_trains_nothing_cannot_be_checked() -> None:
    x = torch.ones(3)

    for sides, side in (
        ((x.sum, whole()), "before"),
        ((whole(), x.sum), "after"),
        ((lambda: x + x, lambda: 2 * x), "before"),
    ):
        assert refusal(*sides) == (
            f"it cannot be checked: nothing that {side} trains was found, no optimizer "
            "of torch.optim made a step, and its step has no tensor with a gradient; "
            "make the tensors variables of the step, or leave it out"
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

    assert refusal(training((2,)), training((2,), (3,))).startswith(
        "the training differs: loss of step 1: 60 % apart"
    )
    assert refusal(training((2, 3)), training((3, 2))) == (
        "it cannot be checked: weights.0 has the shape (2, 3), after weights.0 has "
        "(3, 2); losses and the norm of all gradients agree"
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
    assert check(returning(None), returning("done")) == (
        "gradients and movement of 4 tensors agree in every digit over 3 steps"
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

    assert said.startswith("returned numbers, gradients and ")
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
