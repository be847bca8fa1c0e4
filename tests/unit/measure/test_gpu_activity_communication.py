"""Communication that no computation hides, in traces written by hand and by torch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_gpuperf.measure.gpu_activity import find_communication, joined, uncovered


def event(
    cat: str, name: str, start: float, end: float, tid: int = 1
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": start,
        "dur": end - start,
        "pid": 1,
        "tid": tid,
    }


STEP = event("user_annotation", "gpuperf.step", 0, 10_000)

GEMM = "ampere_sgemm_128x64_tn"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("collective", "exposed_ms"),
    [
        ((1_000, 3_000), 0.0),
        ((3_000, 7_000), 3.0),
        ((5_000, 9_000), 4.0),
        ((0, 10_000), 6.0),
    ],
    ids=["hidden", "hidden at first", "behind the computation", "around it"],
)
def test_a_collective_is_exposed_where_no_kernel_computes_on_any_stream(
    collective: tuple[int, int], exposed_ms: float
) -> None:
    start, end = collective
    events = [
        STEP,
        event("kernel", GEMM, 0, 2_500, tid=7),
        event("kernel", GEMM, 2_000, 4_000, tid=8),
        event("kernel", REDUCE, start, end, tid=20),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 5_000, 9_000, tid=7),
        event("cpu_op", "aten::mm", 4_000, 9_000),
        event("user_annotation", "gloo:all_reduce", 0, 10_000),
    ]

    assert find_communication(events) == ((end - start) / 1e3, exposed_ms)


def test_on_the_host_operations_of_any_thread_hide_a_collective() -> None:
    events = [
        STEP,
        event("user_annotation", "gpuperf.step", 10_000, 20_000),
        event("user_annotation", "gloo:all_reduce", 1_000, 5_000, tid=3),
        event("user_annotation", "gloo:all_gather", 4_000, 6_000, tid=4),
        event("cpu_op", "c10d::allreduce_", 0, 6_000),
        event("cpu_op", "aten::mm", 2_000, 3_000, tid=2),
        event("cpu_op", "aten::mul", 2_500, 3_500),
    ]

    assert find_communication(events) == (2.5, 1.75)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [STEP],
        [STEP, event("kernel", GEMM, 0, 5)],
        [STEP, event("cpu_op", "c10d::allreduce_", 0, 5)],
        [event("kernel", REDUCE, 0, 5)],
        [STEP, {**event("kernel", REDUCE, 0, 5), "dur": None}],
        [STEP, {**event("kernel", REDUCE, 0, 5), "ph": "i"}],
    ],
    ids=["empty", "alone", "computes", "starts one", "no step", "no end", "no span"],
)
def test_a_trace_without_communication_shows_none(events: list[Any]) -> None:
    assert find_communication(events) is None


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda p: (p[0], p[0] + p[1]))
)


@given(intervals, intervals)
def test_what_is_uncovered_is_counted_moment_by_moment(
    some: list[tuple[int, int]], covers: list[tuple[int, int]]
) -> None:
    def moments(spans: list[tuple[int, int]]) -> set[int]:
        return {moment for start, end in spans for moment in range(start, end)}

    assert uncovered(joined(some), joined(covers)) == len(
        moments(some) - moments(covers)
    )
