"""A few numbers for a tensor: what processes compare in place of tensors."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.compare_steps.training_record import (
    COLUMNS,
    ROWS,
    SUMS,
    of_numbers,
    sketch_of,
)
from pytest_gpuperf.judge.training import apart
from pytest_gpuperf.model.ab import Sketch


SIZES = (1, SUMS, SUMS + 1, COLUMNS, COLUMNS + 1, ROWS * COLUMNS, ROWS * COLUMNS + 9)


def drawn(size: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("size", SIZES)
def test_sums_of_a_difference_are_the_differences_of_sums(size: int) -> None:
    one, two = drawn(size), drawn(size, seed=1)

    both = zip(of_numbers(one).sums, of_numbers(two).sums, strict=True)

    assert of_numbers(one - two).sums == pytest.approx([a - b for a, b in both])


@pytest.mark.parametrize("size", SIZES[2:])
@pytest.mark.parametrize("kind", ["spread", "one number", "a row times a column"])
def test_the_distance_is_estimated_within_a_factor_of_two(size: int, kind: str) -> None:
    one = drawn(size)
    step = drawn(size, seed=2)
    if kind == "one number":
        step = torch.zeros(size, dtype=torch.float64)
        step[size // 2] = 3.0
    if kind == "a row times a column" and size % COLUMNS == 0:
        step = torch.outer(drawn(size // COLUMNS), drawn(COLUMNS, 1)).reshape(-1)
    true = float(step.norm() / max(one.norm(), (one + step).norm()))

    estimated = apart(of_numbers(one), of_numbers(one + step))

    assert true / 2 < estimated < true * 2


def test_numbers_that_are_few_enough_are_kept_as_they_are() -> None:
    assert of_numbers(torch.tensor([1.5, -2.0])).sums == (1.5, -2.0)


def test_two_processes_draw_the_same_signs_and_leave_the_users_numbers_alone() -> None:
    torch.manual_seed(7)
    first, state = of_numbers(torch.ones(5000)), torch.get_rng_state()

    torch.rand(3)
    torch.set_rng_state(state)

    assert of_numbers(torch.ones(5000)) == first
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_every_type_of_numbers_has_a_norm(dtype: str) -> None:
    tensor = torch.full((3, 40), 2.0, dtype=getattr(torch, dtype))

    found = sketch_of(tensor)

    assert found.shape == (3, 40)
    assert found.norm == pytest.approx(float(torch.full((120,), 2.0).norm()))
    assert len(found.sums) == SUMS


def test_a_sparse_gradient_is_that_of_a_dense_one() -> None:
    dense = torch.zeros(30, 4)
    dense[7] = 1.0

    assert sketch_of(dense.to_sparse()) == sketch_of(dense)


@pytest.mark.parametrize("number", [nan, inf])
def test_what_is_not_finite_has_no_sums_and_differs_from_what_is(number: float) -> None:
    found = of_numbers(torch.tensor([1.0, number]))

    assert found == Sketch(shape=(2,), finite=False)
    assert apart(found, of_numbers(torch.ones(2))) == inf
    assert apart(found, found) == 0.0


def test_an_empty_tensor_is_like_another_one() -> None:
    assert apart(of_numbers(torch.ones(0)), of_numbers(torch.ones(0))) == 0.0
