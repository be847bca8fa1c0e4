"""Copies between host and device, off traces made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from trace_events import call, copied, function, marker, op, step

from pytest_gpuperf.measure.syncs import find_traffic
from pytest_gpuperf.model.finding import Finding, FindingKind, Location


FROM_PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
FROM_PINNED = "Memcpy HtoD (Pinned -> Device)"
TO_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"
TO_PINNED = "Memcpy DtoH (Device -> Pinned)"

NOTHING = {"h2d_bytes": 0, "d2h_bytes": 0, "pageable_copies": 0}


def copy(
    name: str,
    start_us: float,
    size_bytes: int | None = 4096,
    *,
    waited_for: bool = False,
    by: str = "aten::copy_",
) -> list[dict[str, Any]]:
    """An operation that copies, its call, perhaps a sync, and what the GPU did."""
    correlation = int(start_us)
    events = [
        op(by, start_us, 20),
        call("cudaMemcpyAsync", start_us + 5, 3, correlation=correlation),
        copied(name, correlation, size_bytes),
    ]
    wait = call("cudaStreamSynchronize", start_us + 9, 4, correlation=correlation + 1)
    return [*events, wait] if waited_for else events


def counts(*copies: list[dict[str, Any]]) -> dict[str, int]:
    events = [step(), *(event for copy in copies for event in copy)]
    return dict(find_traffic(events).exact)


def test_a_step_that_copies_nothing_counts_nothing() -> None:
    found = find_traffic([step(), op("aten::mm", 10, 20), call("cudaLaunchKernel", 12)])

    assert (found.exact, found.unmeasured, found.findings) == (NOTHING, {}, ())


@pytest.mark.parametrize(
    ("made", "changed"),
    [
        (copy(FROM_PINNED, 10), {"h2d_bytes": 4096}),
        (
            copy(FROM_PINNED, 10, waited_for=True),
            {"h2d_bytes": 4096},
        ),
        (copy(FROM_PAGEABLE, 10), {"h2d_bytes": 4096, "pageable_copies": 1}),
        (
            copy(FROM_PAGEABLE, 10, waited_for=True),
            {"h2d_bytes": 4096, "pageable_copies": 1},
        ),
        (copy(TO_PINNED, 10), {"d2h_bytes": 4096}),
        (
            copy(TO_PAGEABLE, 10),
            {"d2h_bytes": 4096, "pageable_copies": 1},
        ),
        (copy("Memcpy DtoD (Device -> Device)", 10), {}),
        (copy("Memcpy PtoP (Device -> Device)", 10), {}),
    ],
)
def test_a_copy_counts_by_its_direction_its_memory_and_its_wait(
    made: list[dict[str, Any]], changed: dict[str, int]
) -> None:
    assert counts(made) == {**NOTHING, **changed}


@pytest.mark.parametrize("reader", ["aten::_local_scalar_dense", "aten::nonzero"])
def test_what_an_operation_reads_for_itself_is_no_copy(reader: str) -> None:
    assert counts(copy(TO_PAGEABLE, 10, 8, waited_for=True, by=reader)) == NOTHING


@pytest.mark.parametrize(
    "library", ["cupy::get", "autograd::engine::evaluate_function"]
)
def test_what_a_library_copies_counts(library: str) -> None:
    assert counts(copy(FROM_PINNED, 10, by=library))["h2d_bytes"] == 4096


def test_a_step_s_copies_add_up_and_the_step_with_most_counts() -> None:
    events = [step(0, 90), step(100, 90)]
    for start_us in (10, 110, 140):
        events += copy(FROM_PAGEABLE, start_us, 1000)

    found = find_traffic(events)

    assert found.exact == {**NOTHING, "h2d_bytes": 2000, "pageable_copies": 2}
    assert [(f.per_step, f.moved_bytes) for f in found.findings] == [(2, 2000)]


def test_a_copy_is_its_call_s_step_s_whenever_the_gpu_gets_to_it() -> None:
    events = [
        step(100, 50),
        call("cudaMemcpyAsync", 10, correlation=1),
        copied(FROM_PINNED, 1, 5, start_us=120),
        call("cudaMemcpyAsync", 140, correlation=2),
        copied(FROM_PINNED, 2, 7, start_us=900),
    ]

    assert find_traffic(events).exact["h2d_bytes"] == 7


def test_a_copy_whose_call_was_not_recorded_is_that_of_the_last_step_begun() -> None:
    events = [
        step(100, 50),
        step(200, 50),
        copied(FROM_PINNED, None, 3, start_us=50),
        copied(FROM_PINNED, None, 5, start_us=190),
        copied(FROM_PINNED, 77, 7, start_us=900),
    ]

    found = find_traffic(events)

    assert found.exact["h2d_bytes"] == 7
    assert found.findings == (
        Finding(
            kind=FindingKind.TRANSFER,
            op=None,
            api=None,
            per_step=1,
            blocked_ms=0.0,
            metrics=("h2d_bytes",),
            reason="from pinned memory to the GPU",
            moved_bytes=7,
        ),
    )


def test_the_copies_of_a_graph_all_count() -> None:
    events = [
        step(),
        call("cudaGraphLaunch", 10, correlation=4),
        copied(FROM_PINNED, 4, 10),
        copied(FROM_PINNED, 4, 20),
    ]

    assert find_traffic(events).exact["h2d_bytes"] == 30


def test_a_finding_says_what_is_copied_from_where_and_by_which_line() -> None:
    events = [
        step(),
        *copy(FROM_PAGEABLE, 100, 512, waited_for=True),
        marker("train.py|12|step", 99, 20),
        function("train.py(8): step", 1, 900),
        *copy(TO_PINNED, 200, 256),
    ]

    assert find_traffic(events).findings == (
        Finding(
            kind=FindingKind.TRANSFER,
            op="aten::copy_",
            api="cudaMemcpyAsync",
            per_step=1,
            blocked_ms=0.0,
            location=Location(file="train.py", line=12, function="step"),
            metrics=("h2d_bytes", "pageable_copies"),
            reason="from pageable memory to the GPU",
            moved_bytes=512,
        ),
        Finding(
            kind=FindingKind.TRANSFER,
            op="aten::copy_",
            api="cudaMemcpyAsync",
            per_step=1,
            blocked_ms=0.0,
            location=Location(file="train.py", line=8, function="step", exact=False),
            metrics=("d2h_bytes",),
            reason="from the GPU to pinned memory",
            moved_bytes=256,
        ),
    )


@pytest.mark.parametrize(
    ("started_by", "is_known"), [("hipMemcpyAsync", False), ("cudaMemcpyAsync", True)]
)
def test_bytes_to_the_host_are_unknown_where_rocm_names_copies_like_inside_the_gpu(
    started_by: str, *, is_known: bool
) -> None:
    events = [
        step(),
        op("aten::copy_", 10, 80),
        call(started_by, 11, 60, correlation=1),
        copied("Memcpy DtoD (Device -> Device)", 1, 512),
    ]

    found = find_traffic(events)

    assert ("d2h_bytes" in found.exact) is is_known
    assert ("d2h_bytes" in found.unmeasured) is not is_known
    assert found.exact["h2d_bytes"] == 0


def test_rocm_does_not_tell_pinned_memory_nor_older_ones_sizes() -> None:
    events = [
        step(),
        op("aten::copy_", 10, 80),
        call("hipMemcpyWithStream", 11, 60, correlation=1),
        copied("Memcpy HtoD (Host -> Device)", 1),
    ]

    found = find_traffic(events)

    assert found.exact == {"d2h_bytes": 0}
    assert found.unmeasured == {
        "pageable_copies": (
            "the profiler does not tell pinned from pageable memory (it is so on ROCm)"
        ),
        "h2d_bytes": "the profiler does not tell how many bytes a copy carries",
    }
    assert [f.reason for f in found.findings] == ["from the CPU to the GPU"]
