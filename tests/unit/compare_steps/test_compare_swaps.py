"""Label swaps: the reference against brute force, torch against the reference."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, strategies as st
from plain_swaps import plain_swaps

from pytest_gpuperf.judge.interleaved import (
    Labels,
    Quad,
    SwapCounts,
    difference,
    quartiles,
)


TIMES = st.floats(-3, 3)
TIED_TIMES = st.sampled_from([0.0, 0.01, 0.02, 0.03])


def quads_of(times: st.SearchStrategy[float], most: int) -> st.SearchStrategy:
    return st.lists(st.tuples(times, times, times, times), min_size=1, max_size=most)


def noisy_quads(count: int, seed: int) -> list[Quad]:
    noise = random.Random(seed)  # noqa: S311 - noise, no secret
    return [tuple(noise.gauss(0, 0.01) for _ in range(4)) for _ in range(count)]


def spelled_out(quads: list[Quad], shift: float) -> SwapCounts:
    """Every label swap of *quads*, by the definition."""
    differences = [
        lower_quartile_difference(
            [
                (b1 - shift, a1, a2, b2 - shift)
                if swap
                else (a1, b1 - shift, b2 - shift, a2)
                for swap, (a1, b1, b2, a2) in zip(swaps, quads, strict=True)
            ]
        )
        for swaps in product((False, True), repeat=len(quads))
    ]
    return (
        sum(d >= differences[0] - 1e-12 for d in differences),
        sum(d <= differences[0] + 1e-12 for d in differences),
    )


def lower_quartile_difference(quads: list[Quad]) -> float:
    before = sorted(t for a1, _, _, a2 in quads for t in (a1, a2))
    after = sorted(t for _, b1, b2, _ in quads for t in (b1, b2))
    return after[len(after) // 4] - before[len(before) // 4]


@pytest.mark.parametrize("shift", [0.0, 0.00995, -0.02956])
@pytest.mark.parametrize("seed", range(4))
def test_eight_quads_have_the_counts_of_all_256_swaps(seed: int, shift: float) -> None:
    quads = noisy_quads(8, seed)

    counts = plain_swaps(quads, shift, Labels.every(8))

    assert counts == spelled_out(quads, shift)


@given(quads=quads_of(TIED_TIMES, most=6), shift=st.sampled_from([0.0, 0.01, -0.02]))
def test_ties_are_counted_on_both_sides(quads: list[Quad], shift: float) -> None:
    counts = plain_swaps(quads, shift, Labels.every(len(quads)))

    assert counts == spelled_out(quads, shift)
    assert sum(counts) > 2 ** len(quads)


def test_the_difference_is_one_of_two_order_statistics() -> None:
    quads = [(8.0, 1.0, 2.0, 7.0), (6.0, 3.0, 4.0, 5.0)]

    assert difference(quads) == 2.0 - 6.0
    assert quartiles(quads) == (6.0, 2.0)


def test_a_sample_of_swaps_counts_the_observed_one_and_all_swaps_hold_it() -> None:
    drawn, every = Labels.drawn(3, 99, seed=1), Labels.every(3)

    assert (drawn.share(0), drawn.share(99)) == (0.01, 1.0)
    assert (every.share(1), every.share(8)) == (0.125, 1.0)
    assert sorted(every) == [bytes(c) for c in product((0, 1), repeat=3)]


def test_the_same_seed_draws_the_same_swaps() -> None:
    drawn = Labels.drawn(5, 7, seed=3)

    assert drawn == Labels.drawn(5, 7, seed=3)
    assert drawn != Labels.drawn(5, 7, seed=4)
    assert [len(coins) for coins in drawn] == [5] * 7


@given(
    quads=quads_of(st.one_of(TIMES, TIED_TIMES), most=40),
    shift=st.one_of(TIMES, TIED_TIMES),
    seed=st.integers(0, 9),
)
def test_torch_counts_what_the_reference_counts(
    quads: list[Quad], shift: float, seed: int
) -> None:
    pytest.importorskip("torch")
    from pytest_gpuperf.compare_steps.measure import torch_swaps

    labels = Labels.drawn(len(quads), 50, seed)

    counts = torch_swaps(quads, shift, labels)

    assert counts == plain_swaps(quads, shift, labels)


@pytest.mark.parametrize("count", [1, 2, 13, 14, 28, 56, 112, 224])
def test_torch_counts_the_same_at_every_look(count: int) -> None:
    pytest.importorskip("torch")
    from pytest_gpuperf.compare_steps.measure import torch_swaps

    quads, labels = noisy_quads(count, count), Labels.drawn(count, 500, seed=0)

    counts = [
        [swaps(quads, shift, labels) for shift in (-0.02, 0.0, 0.001, 5.0)]
        for swaps in (torch_swaps, plain_swaps)
    ]

    assert counts[0] == counts[1]


def test_torch_counts_on_the_cpu_whatever_the_default_device_is() -> None:
    torch = pytest.importorskip("torch")
    from pytest_gpuperf.compare_steps.measure import torch_swaps

    quads, labels = noisy_quads(20, 0), Labels.drawn(20, 100, seed=0)

    with torch.device("meta"):
        counts = torch_swaps(quads, 0.0, labels)

    assert counts == plain_swaps(quads, 0.0, labels)
