"""The simulated caching allocator, on cases worked out by hand from its rules."""

from __future__ import annotations

import pytest

from pytest_gpuperf.devices.simulated.allocator import (
    CachingAllocator,
    rounded,
    segment_bytes,
    settings_against_allocated,
    settings_against_reserved,
)


MIB = 2**20


def sums(allocator: CachingAllocator) -> tuple[int, int, int]:
    return allocator.allocated.now, allocator.reserved.now, allocator.segments.now


@pytest.mark.parametrize(
    ("asked", "given"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB)]
)
def test_requests_are_rounded_up_to_512_bytes(asked: int, given: int) -> None:
    assert rounded(asked) == given


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
    ],
)
def test_segments_come_in_three_sizes(block: int, segment: int) -> None:
    assert segment_bytes(block) == segment


def test_small_blocks_share_a_segment_of_two_mib() -> None:
    allocator = CachingAllocator()

    for number in range(1, 4):
        allocator.allocate(number, 700_000)

    assert sums(allocator) == (3 * rounded(700_000), 4 * MIB, 2)


def test_what_is_left_of_a_large_block_counts_as_allocated_up_to_one_mib() -> None:
    allocator = CachingAllocator()

    allocator.allocate(1, 11 * MIB)
    allocator.allocate(2, 19 * MIB + 512)

    assert sums(allocator) == (12 * MIB + 20 * MIB, 32 * MIB, 2)


def test_more_than_one_mib_left_is_cut_off_and_used() -> None:
    allocator = CachingAllocator()

    allocator.allocate(1, 2 * MIB)
    allocator.allocate(2, 17 * MIB - 512)

    assert sums(allocator) == (19 * MIB - 512, 20 * MIB, 1)


def test_a_small_block_is_cut_down_to_512_bytes() -> None:
    allocator = CachingAllocator()

    allocator.allocate(1, 1)
    allocator.allocate(2, MIB)
    allocator.allocate(3, MIB - 512)

    assert sums(allocator) == (2 * MIB, 2 * MIB, 1)


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 30 * MIB)
    allocator.allocate(2, 14 * MIB)
    allocator.free(1)
    allocator.free(2)

    allocator.allocate(3, 14 * MIB)
    allocator.allocate(4, 30 * MIB)

    assert sums(allocator) == (44 * MIB, 44 * MIB, 2)


def test_a_freed_block_is_joined_with_its_free_neighbours() -> None:
    allocator = CachingAllocator()
    for number in (1, 2, 3):
        allocator.allocate(number, 6 * MIB)
    allocator.free(1)
    allocator.free(3)
    allocator.free(2)

    allocator.allocate(4, 20 * MIB)

    assert sums(allocator) == (20 * MIB, 20 * MIB, 1)


def test_a_neighbour_in_use_keeps_blocks_apart() -> None:
    allocator = CachingAllocator()
    for number in (1, 2, 3):
        allocator.allocate(number, 6 * MIB)
    allocator.free(1)
    allocator.free(3)

    allocator.allocate(4, 9 * MIB)

    assert sums(allocator) == (15 * MIB, 40 * MIB, 2)


def test_peaks_start_again_at_what_is_now() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 40 * MIB)
    allocator.allocate(2, 10 * MIB)
    allocator.free(1)

    allocator.reset_peaks()
    allocator.allocate(3, 20 * MIB)

    assert allocator.allocated.peak == 30 * MIB
    assert allocator.reserved.peak == 50 * MIB


@pytest.mark.parametrize(
    "value", ["", "expandable_segments:False", "backend:native", "pinned_use_x:True"]
)
def test_settings_that_change_nothing_are_not_named(value: str) -> None:
    assert settings_against_reserved({"PYTORCH_CUDA_ALLOC_CONF": value}) is None
    assert settings_against_allocated({"PYTORCH_ALLOC_CONF": value}) is None


def test_a_setting_that_moves_segments_is_named() -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "a:1,expandable_segments:True"}

    assert settings_against_reserved(environment) == (
        "PYTORCH_CUDA_ALLOC_CONF sets expandable_segments:True, and the simulated "
        "allocator has its defaults: unset it, or measure on a GPU"
    )
    assert settings_against_allocated(environment) is None


def test_a_setting_that_changes_sizes_is_named_for_both() -> None:
    environment = {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:4"}

    said = (
        "PYTORCH_ALLOC_CONF sets roundup_power2_divisions:4, and the simulated "
        "allocator has its defaults: unset it, or measure on a GPU"
    )
    assert settings_against_reserved(environment) == said
    assert settings_against_allocated(environment) == said


def test_an_emptied_cache_gives_back_the_segments_of_which_nothing_is_in_use() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 30 * MIB)
    allocator.allocate(2, 6 * MIB)
    allocator.allocate(3, 512)
    allocator.free(1)
    allocator.free(3)

    allocator.empty_cache()

    assert sums(allocator) == (6 * MIB, 20 * MIB, 1)
    assert (allocator.split.now, allocator.split_blocks.now) == (14 * MIB, 1)
    assert (allocator.segments.come, allocator.segments.gone) == (3, 2)
    allocator.allocate(4, 14 * MIB)
    assert sums(allocator) == (20 * MIB, 20 * MIB, 1)
    assert allocator.split.now == 0


def test_what_does_not_fit_the_limit_may_still_fit_a_cached_block() -> None:
    allocator = CachingAllocator()
    allocator.allocate(1, 40 * MIB)
    allocator.free(1)

    assert allocator.fits(20 * MIB, 60 * MIB)
    assert allocator.fits(40 * MIB, 60 * MIB)
    assert not allocator.fits(40 * MIB + 1, 60 * MIB)
    allocator.empty_cache()
    assert allocator.fits(60 * MIB, 60 * MIB)


def test_what_was_asked_for_is_counted_beside_what_was_given() -> None:
    allocator = CachingAllocator()

    allocator.allocate(1, 1000)
    allocator.allocate(2, 1)
    allocator.free(1)

    asked = allocator.requested
    assert (asked.now, asked.peak, asked.come, asked.gone) == (1, 1001, 1001, 1000)
    assert (allocator.blocks.now, allocator.blocks.come) == (1, 2)
