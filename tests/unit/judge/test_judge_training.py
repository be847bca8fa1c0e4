"""Whether two sides train the same, by records that were made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_gpuperf.judge.training import judge_training
from pytest_gpuperf.model.ab import (
    Sketch,
    TrainedStep,
    TrainedTensor,
    TrainingAnswer,
    TrainingRecord,
)


NAN = Sketch(shape=(), finite=False)


def number(value: float) -> Sketch:
    return Sketch(shape=(), norm=abs(value), sums=(value,))


def many(*sums: float, shape: tuple[int, ...] = (8, 8), norm: float = 8.0) -> Sketch:
    return Sketch(shape=shape, norm=norm, sums=sums or (8.0,) * 16)


WEIGHT = TrainedTensor(
    name="weight",
    value=many(),
    gradient=many(),
    movement=many(),
    options={"lr": "0.001", "weight_decay": "0"},
)
STEP = TrainedStep(
    returned=number(2.0), losses=(number(2.0),), updates=1, tensors=(WEIGHT,)
)
RUN = TrainingRecord(steps=(STEP, STEP, STEP))


def with_step(step: TrainedStep, run: TrainingRecord = RUN) -> TrainingRecord:
    return replace(run, steps=(step, *run.steps[1:]))


def with_loss(value: float, run: TrainingRecord = RUN) -> TrainingRecord:
    return with_step(replace(STEP, returned=number(value)), run)


def with_tensor(*tensors: TrainedTensor) -> TrainingRecord:
    return with_step(replace(STEP, tensors=tensors))


def answer(
    before: TrainingRecord, after: TrainingRecord, *more: TrainingRecord
) -> tuple[TrainingAnswer, str]:
    """Judge two runs a side; *more* are the second ones if they are others."""
    second = more or (before, after)
    found = judge_training((before, second[0]), (after, second[1]))
    return found.answer, found.text


def test_equal_runs_are_the_same() -> None:
    assert answer(RUN, RUN) == (
        TrainingAnswer.SAME,
        (
            "returned numbers, gradients and movement of 1 tensor agree in every digit over "
            "3 steps"
        ),
    )


@pytest.mark.parametrize(
    ("precision", "tolerated"),
    [("float64", 1e-9), ("float32", 1e-4), ("float16", 2e-2), ("bfloat16", 5e-2)],
)
def test_the_type_of_numbers_says_what_rounding_explains(
    precision: str, tolerated: float
) -> None:
    run = replace(RUN, precision=precision)

    within = answer(run, with_loss(2.0 * (1 + 0.9 * tolerated), run))
    beyond = answer(run, with_loss(2.0 * (1 + 1.2 * tolerated), run))

    assert within[0] is TrainingAnswer.SAME
    assert beyond[0] is TrainingAnswer.DIFFERS


def test_the_first_that_differs_is_named_with_its_numbers() -> None:
    assert answer(RUN, with_loss(2.01)) == (
        TrainingAnswer.DIFFERS,
        (
            "what is returned by step 1: 0.498 % apart (2 before, 2.01 after), tolerated "
            "0.01 %"
        ),
    )


def test_numbers_that_became_coarser_are_not_tolerated_for_that() -> None:
    after = with_loss(2.02, replace(RUN, precision="bfloat16"))

    found, text = answer(RUN, after)

    assert found is TrainingAnswer.DIFFERS
    assert text.endswith("; before computes in float32, after in bfloat16")


def test_an_option_of_the_optimizer_is_named() -> None:
    other = replace(WEIGHT, options={"lr": "0.01", "weight_decay": "0"})

    assert answer(RUN, with_tensor(other)) == (
        TrainingAnswer.DIFFERS,
        "lr of weight: 0.001 before, 0.01 after",
    )


def test_a_gradient_that_is_only_rounding_may_be_any() -> None:
    bias = TrainedTensor(name="bias", value=many(), gradient=many())
    one, two = (
        replace(bias, gradient=many(*[sign * 1e-6] * 16, norm=1e-6)) for sign in (1, -1)
    )

    assert answer(with_tensor(WEIGHT, one), with_tensor(WEIGHT, two))[0] is (
        TrainingAnswer.SAME
    )


@pytest.mark.parametrize(
    ("precision", "found"),
    [("bfloat16", TrainingAnswer.SAME), ("float32", TrainingAnswer.DIFFERS)],
)
def test_a_small_gradient_of_a_coarse_type_is_compared_with_all_of_them(
    precision: str, found: TrainingAnswer
) -> None:
    bias = TrainedTensor(name="bias", value=many(), gradient=many())
    before, after = (
        replace(
            with_tensor(WEIGHT, replace(bias, gradient=many(*[each] * 16, norm=norm))),
            precision=precision,
        )
        for each, norm in ((0.24, 0.24), (0.2544, 0.2544))
    )

    assert answer(before, after)[0] is found


@pytest.mark.parametrize("is_both", [True, False])
def test_nan_differs_unless_both_have_it(is_both: bool) -> None:  # noqa: FBT001
    broken = with_step(replace(STEP, returned=NAN))

    found, text = answer(broken if is_both else RUN, broken)

    if is_both:
        assert found is TrainingAnswer.SAME
    else:
        assert found is TrainingAnswer.DIFFERS
        assert text == "what is returned by step 1 is NaN or infinite on one side"


def test_another_shape_is_another_model() -> None:
    wide = replace(WEIGHT, gradient=many(shape=(8, 9)))

    assert answer(RUN, with_tensor(wide)) == (
        TrainingAnswer.DIFFERS,
        "the model is another one: weight has the shape (8, 8), after weight has (8, 9)",
    )


def test_a_tensor_that_is_trained_no_more_is_named() -> None:
    bias = replace(WEIGHT, name="bias")

    assert answer(with_tensor(WEIGHT, bias), RUN) == (
        TrainingAnswer.DIFFERS,
        "the model is another one: before trains 2 tensors, after 1, such as bias",
    )


def test_a_layer_that_is_fused_is_not_compared_though_its_losses_agree() -> None:
    halves = [
        TrainedTensor(
            name=name, value=many(), gradient=many(shape=(4, 8), norm=32**0.5)
        )
        for name in ("one", "two")
    ]

    found, text = answer(
        replace(RUN, steps=(replace(STEP, tensors=tuple(halves)),)),
        replace(RUN, steps=(STEP,)),
    )

    assert found is TrainingAnswer.NOT_COMPARED
    assert text == (
        "before trains 2 tensors, after 1, such as one; losses and the norm of all "
        "gradients agree"
    )


def test_parameters_with_other_names_are_matched_in_their_order() -> None:
    other = replace(WEIGHT, name="layer.weight")

    assert answer(RUN, with_tensor(other))[0] is TrainingAnswer.SAME


def test_a_scaled_loss_with_the_same_gradients_trains_the_same() -> None:
    alone = with_step(replace(STEP, returned=None))
    scaled = with_step(replace(STEP, returned=None, losses=(number(2048.0),)))

    assert answer(alone, scaled)[0] is TrainingAnswer.SAME


def test_another_number_of_updates_differs() -> None:
    assert answer(RUN, with_step(replace(STEP, updates=2))) == (
        TrainingAnswer.DIFFERS,
        "in step 1 before makes 1 optimizer step, after 2",
    )


class TestScatter:
    def test_what_varies_within_a_side_is_not_compared(self) -> None:
        assert answer(RUN, with_loss(2.1), with_loss(2.05), with_loss(2.1)) == (
            TrainingAnswer.NOT_COMPARED,
            "before varies from run to run: what is returned by step 1",
        )

    def test_scatter_of_after_alone_is_not_blamed_either(self) -> None:
        found, text = answer(RUN, with_loss(2.1), RUN, with_loss(2.3))

        assert found is TrainingAnswer.NOT_COMPARED
        assert text == "after varies from run to run: what is returned by step 1"

    def test_draws_without_a_seed_that_are_new_are_blamed(self) -> None:
        draws = replace(with_loss(2.1), unseeded=True)

        found, text = answer(RUN, draws, RUN, with_loss(2.3))

        assert found is TrainingAnswer.DIFFERS
        why = "after uses random numbers without a seed, before does not; what is "
        assert text.startswith(why)

    def test_draws_without_a_seed_on_both_sides_are_no_evidence(self) -> None:
        draws = replace(RUN, unseeded=True)

        found, text = answer(draws, replace(with_loss(2.1), unseeded=True))

        assert found is TrainingAnswer.NOT_COMPARED
        assert text.startswith(
            "it uses random numbers without a seed; what is returned by step 1: "
        )

    def test_a_difference_beside_a_small_scatter_is_one(self) -> None:
        found, _ = answer(RUN, with_loss(2.1), with_loss(2.00001), with_loss(2.1))

        assert found is TrainingAnswer.DIFFERS

    def test_what_differs_in_the_first_runs_alone_is_not_compared(self) -> None:
        found, _ = answer(RUN, with_loss(2.0003), RUN, with_loss(2.0001))

        assert found is TrainingAnswer.NOT_COMPARED


def test_what_trains_nothing_says_so() -> None:
    empty = TrainingRecord(steps=(TrainedStep(),))

    assert answer(empty, empty)[0] is TrainingAnswer.NOTHING
    assert answer(RUN, replace(empty, steps=(TrainedStep(),) * 3))[0] is (
        TrainingAnswer.DIFFERS
    )


def test_a_side_without_values_is_not_compared() -> None:
    lost = replace(RUN, missing="values do not fit")

    assert answer(RUN, lost) == (TrainingAnswer.NOT_COMPARED, "values do not fit")


def test_a_movement_of_less_than_the_last_place_of_its_numbers_may_be_any() -> None:
    other = replace(WEIGHT, movement=many(*[-8.0] * 16))

    assert answer(RUN, with_tensor(other))[0] is TrainingAnswer.DIFFERS
    coarse = replace(other, rounding=16.1)
    assert answer(RUN, with_tensor(coarse))[0] is TrainingAnswer.SAME


def test_rounding_adds_up_from_step_to_step() -> None:
    apart = replace(STEP, returned=number(2.0 * (1 + 2.5e-4)))

    second = replace(RUN, steps=(STEP, apart, STEP))
    third = replace(RUN, steps=(STEP, STEP, apart))

    assert answer(RUN, second)[0] is TrainingAnswer.DIFFERS
    assert answer(RUN, third)[0] is TrainingAnswer.SAME
