from __future__ import annotations

from typing import Any

import pytest
from builders import a_finding
from trace_events import call, copied, event, function, marker, op, step

from pytest_gpuperf.devices.allow_sync import Allowance, marker_allowing
from pytest_gpuperf.errors import ErrorId, RunError
from pytest_gpuperf.measure.syncs import Syncs, find_syncs
from pytest_gpuperf.model.finding import Finding, Location


TO_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"


def finding(
    op: str | None,
    api: str | None,
    *,
    per_step: int = 1,
    blocked_ms: float = 0.0,
    location: Location | None = None,
) -> Finding:
    return a_finding(
        op=op, api=api, per_step=per_step, blocked_ms=blocked_ms, location=location
    )


def around(text: str, call_us: float, **where: int) -> dict[str, Any]:
    """The marker around a call at *call_us*."""
    return marker(text, call_us - 0.05, 11.0, **where)


def item(start_us: float, *, copy_us: float, wait_us: float) -> list[dict[str, Any]]:
    """``aten::item`` with the copy and the synchronisation that CUDA makes of it."""
    return [
        op("aten::item", start_us, 1.0 + copy_us + wait_us),
        op("aten::_local_scalar_dense", start_us + 0.5, copy_us + wait_us + 0.4),
        call("cudaMemcpyAsync", start_us + 0.6, copy_us, correlation=1),
        call("cudaStreamSynchronize", start_us + 0.6 + copy_us, wait_us),
    ]


def test_a_step_without_syncs_has_none() -> None:
    events = [step(), op("aten::mm", 10, 20), call("cudaLaunchKernel", 12, 5)]

    assert find_syncs(events) == Syncs(per_step=0, findings=())


def test_a_pageable_copy_and_its_synchronisation_are_one_sync_of_both_times() -> None:
    """The sync is nearly all inside cudaMemcpyAsync."""
    events = [
        step(duration_us=200_000),
        *item(100, copy_us=125_000, wait_us=12),
        copied(TO_PAGEABLE, 1),
    ]

    (found,) = find_syncs(events).findings

    assert found.blocked_ms == pytest.approx(125.012)
    assert found == finding(
        "aten::_local_scalar_dense",
        "cudaStreamSynchronize",
        blocked_ms=found.blocked_ms,
    )


def test_the_synchronisation_of_another_operation_is_its_own_sync() -> None:
    """A pageable destination was waited for in the copy, whatever comes after."""
    events = [
        step(),
        op("aten::copy_", 10, 30),
        call("cudaMemcpyAsync", 11, 25, correlation=1),
        copied(TO_PAGEABLE, 1),
        call("cudaDeviceSynchronize", 50, 4),
    ]

    assert find_syncs(events) == Syncs(
        per_step=2,
        findings=(
            finding("aten::copy_", "cudaMemcpyAsync", blocked_ms=0.025),
            finding(None, "cudaDeviceSynchronize", blocked_ms=0.004),
        ),
    )


@pytest.mark.parametrize(
    "kind",
    [
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy DtoD (Device -> Device)",
    ],
)
def test_other_asynchronous_copies_are_no_syncs(kind: str) -> None:
    events = [
        step(),
        op("aten::copy_", 10, 30),
        call("cudaMemcpyAsync", 11, 25, correlation=1),
        copied(kind, 1),
    ]

    assert find_syncs(events) == Syncs(per_step=0, findings=())


def test_a_pageable_copy_at_the_very_end_counts() -> None:
    events = [step(), call("cudaMemcpyAsync", 11, 25, correlation=1)]
    events.append(copied(TO_PAGEABLE, 1))

    assert find_syncs(events).per_step == 1


def test_a_copy_on_one_thread_is_not_completed_by_another() -> None:
    events = [
        step(),
        call("cudaMemcpyAsync", 11, 5, thread=7, correlation=1),
        call("cudaStreamSynchronize", 20, 3, thread=8),
    ]

    assert find_syncs(events).findings == (
        finding(None, "cudaStreamSynchronize", blocked_ms=0.003),
    )


def test_syncs_outside_the_step_are_not_counted() -> None:
    events = [
        call("cudaDeviceSynchronize", 1, 5),
        step(100, 50),
        call("cudaDeviceSynchronize", 151, 5),
    ]

    assert find_syncs(events) == Syncs(per_step=0, findings=())


def test_a_sync_on_a_thread_of_autograd_counts() -> None:
    events = [
        step(),
        op("aten::nonzero", 10, 20, thread=8),
        call("cudaStreamSynchronize", 15, 4, thread=8),
    ]

    assert find_syncs(events).findings == (
        finding("aten::nonzero", "cudaStreamSynchronize", blocked_ms=0.004),
    )


def test_the_operation_is_found_by_time_and_not_by_external_id() -> None:
    stale = {**op("aten::mm", 500, 10), "args": {"External id": 3}}
    wait = {**call("cudaStreamSynchronize", 15, 4), "args": {"External id": 3}}
    events = [step(), op("aten::unique", 10, 20), stale, wait]

    (found,) = find_syncs(events).findings

    assert found.op == "aten::unique"


BLOCKING = (
    "cudaStreamSynchronize cudaStreamSynchronize_ptsz cudaEventSynchronize "
    "cudaDeviceSynchronize cudaMemcpy cuCtxSynchronize cuMemcpyDtoH_v2 "
    "hipMemcpyWithStream hipStreamSynchronize hipDeviceSynchronize hipMemcpy"
)
OTHERS = (
    "cudaMalloc cudaFree cudaHostAlloc cudaStreamWaitEvent cudaEventRecord "
    "cudaEventQuery cudaMemcpyAsync cudaMemcpyPeerAsync cudaMemsetAsync "
    "cudaLaunchKernel hipLaunchKernel"
)


@pytest.mark.parametrize("name", BLOCKING.split())
def test_calls_that_block_the_host_are_syncs(name: str) -> None:
    events = [step(), call(name, 10, 3)]

    assert find_syncs(events).findings == (finding(None, name, blocked_ms=0.003),)


@pytest.mark.parametrize("name", OTHERS.split())
def test_calls_that_return_at_once_or_allocate_are_no_syncs(name: str) -> None:
    assert find_syncs([step(), call(name, 10, 3)]).per_step == 0


def test_copy_and_wait_in_one_call_of_rocm_is_one_sync() -> None:
    events = [
        step(),
        op("aten::copy_", 10, 80),
        call("hipMemcpyWithStream", 11, 60, correlation=1),
        copied("Memcpy HtoD (Host -> Device)", 1),
    ]

    assert find_syncs(events).findings == (
        finding("aten::copy_", "hipMemcpyWithStream", blocked_ms=0.06),
    )


def test_a_trace_of_2021_is_read() -> None:
    events = [
        event("Operator", "gpuperf.step", 0, 100),
        event("Operator", "aten::copy_", 10, 30),
        event("Runtime", "cudaStreamSynchronize", 15, 10),
    ]

    assert find_syncs(events).findings == (
        finding("aten::copy_", "cudaStreamSynchronize", blocked_ms=0.01),
    )


def test_a_sync_in_one_of_three_steps_counts_and_its_time_is_shared() -> None:
    events = [step(0, 90), step(100, 90), step(200, 90)]
    events.append(call("cudaStreamSynchronize", 150, 30))

    assert find_syncs(events) == Syncs(
        per_step=1, findings=(finding(None, "cudaStreamSynchronize", blocked_ms=0.01),)
    )


def test_the_worst_step_is_counted() -> None:
    events = [step(0, 90), step(100, 90)]
    events += [call("cudaStreamSynchronize", at, 1) for at in (10, 110, 120, 130)]

    assert find_syncs(events).per_step == 3


def test_findings_stand_by_blocked_time_then_by_count() -> None:
    events = [
        step(),
        call("cudaEventSynchronize", 10, 2),
        *[op("aten::nonzero", at, 5) for at in (20, 30)],
        *[call("cudaStreamSynchronize", at, 1) for at in (21, 31)],
        call("cudaDeviceSynchronize", 50, 70),
    ]

    found = find_syncs(events).findings

    assert [(f.api, f.per_step) for f in found] == [
        ("cudaDeviceSynchronize", 1),
        ("cudaStreamSynchronize", 2),
        ("cudaEventSynchronize", 1),
    ]


def test_the_function_of_the_user_is_named_with_the_line_of_its_def() -> None:
    events = [
        step(),
        function("train.py(8): step", 1, 900),
        function("torch/_tensor.py(40): wrapped", 9, 50),
        function("<built-in method item of Tensor object at 0x1>", 10, 40),
        *item(11, copy_us=10, wait_us=5),
    ]

    (found,) = find_syncs(events).findings

    assert found.location == Location(
        file="train.py", line=8, function="step", exact=False
    )


def test_a_marker_names_the_exact_line() -> None:
    events = [
        step(),
        function("train.py(8): step", 1, 900),
        *item(11, copy_us=10, wait_us=5),
        around("/src/train.py|12|step", 11.0),
    ]

    (found,) = find_syncs(events).findings

    assert found.location == Location(file="/src/train.py", line=12, function="step")


def test_a_marker_around_the_wait_for_a_copy_names_the_line_of_both() -> None:
    events = [
        step(),
        *item(11, copy_us=10, wait_us=5),
        around("train.py|12|step", 21.6),
    ]

    (found,) = find_syncs(events).findings

    assert str(found.location) == "train.py:12 in step"


def lines(events: list[dict[str, Any]]) -> list[str]:
    """What is said of the places of the syncs, in the order of time."""
    numbered = [
        {**e, "dur": 10.0 - number / 100} if e["cat"] == "cuda_runtime" else e
        for number, e in enumerate(events)
    ]
    return [str(f.location) for f in find_syncs(numbered).findings]


def test_each_wait_has_the_marker_around_it() -> None:
    events = [step()]
    for number, at in enumerate((100, 200, 300)):
        events += [
            around(f"train.py|{number}|step", at),
            call("cudaDeviceSynchronize", at),
        ]

    assert lines(events) == [
        f"train.py{f':{n}' if n else ''} in step" for n in range(3)
    ]


def test_a_marker_is_for_the_waits_inside_it() -> None:
    """What torch does not tell of, a sync inside a library, has no line."""
    events = [
        step(),
        function("train.py(8): step", 1, 900),
        op("aten::unique_dim", 50, 200),
        around("train.py|12|step", 100),
        call("cudaStreamSynchronize", 100),
        call("cudaStreamSynchronize", 130),
    ]

    assert lines(events) == [
        "train.py:12 in step",
        "train.py:8 in step (line unknown, this is the def)",
    ]


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param([around("train.py|3|step", 100, thread=8)], id="another thread"),
        pytest.param([around("train.py|3|step", 120)], id="after the sync"),
        pytest.param([around("train.py|3|step", 80)], id="before the sync"),
        pytest.param([around("train.py|3|step", -50), step(-90, 80)], id="a step ago"),
        pytest.param([around("train.py", 100)], id="without a line"),
    ],
)
def test_a_marker_from_elsewhere_names_no_line(elsewhere: list[dict[str, Any]]) -> None:
    wait = call("cudaDeviceSynchronize", 100, 10)

    (found,) = find_syncs([step(), *elsewhere, wait]).findings

    assert found.location is None


def behind(text: str, start_us: float) -> dict[str, Any]:
    """The empty marker that stands behind an operation that has waited."""
    return event("user_annotation", f"gpuperf.synced|{text}", start_us, 0.01)


def test_markers_behind_an_operation_name_the_line_of_its_waits() -> None:
    events = [
        step(),
        op("aten::repeat_interleave", 100, 50),
        call("cudaStreamSynchronize", 110),
        call("cudaStreamSynchronize", 130),
        behind("train.py|12|step", 151),
        behind("train.py|12|step", 152),
    ]

    (found,) = find_syncs(events).findings

    assert (found.per_step, str(found.location)) == (2, "train.py:12 in step")


def test_a_wait_that_torch_does_not_warn_of_takes_no_marker_of_another() -> None:
    events = [
        step(),
        call("cudaDeviceSynchronize", 100),
        op("aten::item", 200, 50),
        call("cudaStreamSynchronize", 210),
        behind("train.py|2|step", 251),
        call("cudaDeviceSynchronize", 300),
        op("aten::item", 400, 50),
        call("cudaStreamSynchronize", 410),
        behind("train.py|4|step", 451),
        call("cudaDeviceSynchronize", 500),
    ]

    found = find_syncs(events).findings
    assert sorted((str(f.location), f.per_step) for f in found) == [
        ("None", 3),
        ("train.py:2 in step", 1),
        ("train.py:4 in step", 1),
    ]


def test_an_asynchronous_copy_takes_no_marker_of_a_wait() -> None:
    events = [
        step(),
        op("aten::item", 100, 20),
        call("cudaStreamSynchronize", 110),
        op("aten::copy_", 130, 20),
        call("cudaMemcpyAsync", 140, 2, correlation=1),
        copied(TO_PAGEABLE, 1),
        behind("train.py|2|step", 160),
    ]

    assert lines(events) == ["train.py:2 in step", "None"]


def test_a_marker_behind_nothing_is_of_no_step_around() -> None:
    events = [
        step(0, 90),
        call("cudaDeviceSynchronize", 10),
        step(100, 90),
        behind("train.py|2|step", 110),
    ]

    assert lines(events) == ["None"]


def test_the_marker_of_a_thread_of_autograd_is_for_its_own_wait() -> None:
    events = [
        step(),
        around("train.py|20|backward", 100, thread=8),
        call("cudaStreamSynchronize", 100, thread=8),
        around("train.py|12|step", 99),
        call("cudaDeviceSynchronize", 101),
    ]

    assert lines(events) == ["train.py:20 in backward", "train.py:12 in step"]


NODE = "autograd::engine::evaluate_function: IndexBackward0"


def after_backward(text: str, start_us: float) -> dict[str, Any]:
    """The empty marker behind a backward pass in which nodes have waited."""
    return event("user_annotation", f"gpuperf.backward|{text}", start_us, 0.01)


def test_a_wait_in_a_node_of_autograd_has_the_line_of_its_backward_pass() -> None:
    """On whatever thread, and however many of them there are."""
    events = [
        step(),
        op(NODE, 99, 20, thread=8),
        call("cudaStreamSynchronize", 100, thread=8),
        op(NODE, 119, 20),
        call("cudaStreamSynchronize", 120),
        after_backward("train.py|7|step", 200),
        op(NODE, 299, 20, thread=8),
        call("cudaStreamSynchronize", 300, thread=8),
        after_backward("train.py|9|step", 400),
    ]

    assert lines(events) == ["train.py:7 in step", "train.py:9 in step"]


def test_a_wait_that_is_in_no_node_or_has_a_marker_takes_none_of_a_backward() -> None:
    events = [
        step(),
        call("cudaStreamSynchronize", 10),
        op(NODE, 99, 20, thread=8),
        around("train.py|20|backward", 100, thread=8),
        call("cudaStreamSynchronize", 100, thread=8),
        after_backward("train.py|7|step", 200),
    ]

    assert lines(events) == ["None", "train.py:20 in backward"]


def test_a_wait_in_a_backward_pass_takes_no_marker_of_the_next_step() -> None:
    events = [
        step(0, 150),
        op(NODE, 99, 20, thread=8),
        call("cudaStreamSynchronize", 100, thread=8),
        step(160, 150),
        after_backward("train.py|7|step", 200),
    ]

    assert lines(events) == ["None"]


def test_on_a_cpu_each_marker_is_a_sync_that_blocked_nothing() -> None:
    events = [
        step(),
        marker("/src/train.py|12|step", 10),
        op("aten::_local_scalar_dense", 11, 5),
    ]

    assert find_syncs(events) == Syncs(
        per_step=1,
        findings=(
            finding(
                "aten::_local_scalar_dense",
                None,
                location=Location(file="/src/train.py", line=12, function="step"),
            ),
        ),
    )


def test_nested_markers_are_as_many_syncs_of_one_operation() -> None:
    events = [
        step(),
        marker("train.py|12|step", 10, 20),
        marker("train.py|12|step", 11, 18),
        op("aten::bincount", 12, 5),
        op("aten::min", 13, 1),
    ]

    (found,) = find_syncs(events).findings

    assert (found.op, found.per_step) == ("aten::bincount", 2)


def test_a_marker_outside_the_step_is_not_counted() -> None:
    assert find_syncs([step(0, 5), marker("train.py|12|step", 10)]).per_step == 0


@pytest.mark.parametrize("name", ["aten::one_hot", "aten::tensor_split"])
def test_reads_that_only_a_cpu_makes_are_not_counted(name: str) -> None:
    events = [step(), op(name, 9, 30), marker("train.py|12|step", 10)]

    assert find_syncs(events).per_step == 0


@pytest.mark.parametrize("text", ["||", "train.py", "train.py|many|step"])
def test_a_marker_without_a_line_is_a_sync_without_a_location(text: str) -> None:
    assert find_syncs([step(), marker(text, 10)]).findings == (finding(None, None),)


def test_the_operation_after_a_marker_is_not_in_it() -> None:
    events = [step(), marker("train.py|12|step", 10, 5), op("aten::mm", 20, 5)]

    assert find_syncs(events).findings[0].op is None


def test_a_trace_without_a_step_is_an_error() -> None:
    with pytest.raises(RunError) as refused:
        find_syncs([op("aten::mm", 1, 2), call("cudaDeviceSynchronize", 3, 4)])

    assert refused.value.error_id is ErrorId.GP305


def test_a_block_allows_as_many_syncs_as_it_says_and_no_metric_counts_those() -> None:
    allowed = marker_allowing(Allowance(reason="the loss is logged", most=1))
    events = [
        step(),
        event("user_annotation", allowed, 10, 100),
        *[call("cudaDeviceSynchronize", at, 4) for at in (20, 40, 200)],
    ]

    found = find_syncs(events)

    assert found.per_step == 2
    assert sorted((f.allowed, f.per_step) for f in found.findings if f.allowed) == [
        ("the loss is logged", 1)
    ]


def test_a_sync_knows_how_many_launches_of_its_step_come_before_it() -> None:
    launches = [call("cudaLaunchKernel", at, 1) for at in (5, 10, 40, 60)]
    events = [step(), *launches, call("cudaDeviceSynchronize", 20, 4)]

    (found,) = find_syncs(events).findings

    assert (found.waits_after, found.operations) == ((2,), 4)
