"""Numbers of a plain profile with the lines of a second one, which is slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from rank_threads import ThreadPeers, together
from scripted_steps import Clockwork
from trace_events import call, copied, event, function, marker, op, step

from pytest_gpuperf.devices.base import Step, TraceEvent
from pytest_gpuperf.distributed.device import AgreedDevice
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.profile import with_lines
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.syncs import find_syncs, find_traffic
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement


def waits_at(*moments_us: float, wait_us: float = 5.0) -> list[dict[str, Any]]:
    """``item`` at each of *moments_us*, as the profiler without lines has it."""
    return [
        one
        for at in moments_us
        for one in (
            op("aten::item", at, wait_us + 2),
            call("cudaStreamSynchronize", at + 1, wait_us),
        )
    ]


def with_markers(events: list[dict[str, Any]], *lines: int) -> list[dict[str, Any]]:
    """*events* with a marker of each of *lines* behind each sync, and the function."""
    ops = [e for e in events if e["name"] == "aten::item"]
    late = [
        event(
            "user_annotation", f"gpuperf.synced|train.py|{n}|step", o["ts"] + o["dur"]
        )
        for n, o in zip(lines, ops, strict=True)
    ]
    return [*events, *late, function("train.py(8): step", 0.5, 5000)]


def places(events: Sequence[TraceEvent]) -> list[tuple[str, int, float]]:
    return sorted(
        (str(f.location), f.per_step, f.blocked_ms) for f in find_syncs(events).findings
    )


# Lines of one trace in another


def test_a_wait_has_the_line_of_its_counterpart_and_the_time_of_its_own() -> None:
    plain = [step(), *waits_at(10, 50, wait_us=20)]
    marked = with_markers([step(0, 9000), *waits_at(100, 700)], 12, 14)

    assert places(with_lines(plain, marked)) == [
        ("train.py:12 in step", 1, 0.02),
        ("train.py:14 in step", 1, 0.02),
    ]


def test_calls_of_other_operations_do_not_count_when_counterparts_are_found() -> None:
    plain = [step(), op("aten::nonzero", 5, 4), call("cudaStreamSynchronize", 6)]
    marked = with_markers([step(), *waits_at(10)], 12)

    assert places(with_lines([*plain, *waits_at(20)], marked)) == [
        ("None", 1, 0.001),
        ("train.py:12 in step", 1, 0.005),
    ]


def test_a_step_that_waits_now_and_then_finds_the_step_that_did() -> None:
    plain = [step(0, 100), *waits_at(10), step(200, 100)]
    marked = with_markers([step(0, 100), step(200, 100), *waits_at(210)], 12)

    assert places(with_lines(plain, marked)) == [("train.py:12 in step", 1, 0.0025)]


def test_three_steps_find_their_lines_in_the_one_that_had_room() -> None:
    plain = [
        one
        for start in (0, 200, 400)
        for one in (step(start, 100), *waits_at(start + 10))
    ]
    marked = with_markers([step(0, 100), *waits_at(30)], 12)

    assert places(with_lines(plain, marked)) == [("train.py:12 in step", 1, 0.005)]


def test_the_lines_of_copies_and_the_functions_of_launches_are_found_too() -> None:
    copies = [
        op("aten::copy_", 10, 10),
        call("cudaMemcpyAsync", 11, 3, correlation=4),
        copied("Memcpy HtoD (Pinned -> Device)", 4, 512),
    ]
    marked = [step(), *copies, function("train.py(8): step", 1, 900)]

    (finding,) = find_traffic(with_lines([step(), *copies], marked)).findings

    assert str(finding.location) == "train.py:8 in step (line unknown, this is the def)"


def test_a_line_of_the_project_keeps_the_library_s_next_to_it() -> None:
    plain = [step(), call("cudaDeviceSynchronize", 10)]
    named = "train.py|12|step|lib.py|3|read"
    marked = [step(), call("cudaDeviceSynchronize", 20), marker(named, 19)]

    (found,) = find_syncs(with_lines(plain, marked)).findings

    assert (str(found.location), str(found.innermost)) == (
        "train.py:12 in step",
        "lib.py:3 in read",
    )


# Sessions


KERNEL: Final = {"cat": "kernel", "name": "sgemm"}


class TwoProfiles(Clockwork):
    """A GPU that waits as often as it is shown in each kind of profile."""

    kind = DeviceKind.CUDA
    lines_take_time = True

    def __init__(
        self, plain: int, marked: int | None = None, slowed: float = 1.0
    ) -> None:
        super().__init__(lambda _: 10.0)
        self.profiles: list[tuple[str, int]] = []
        self._waits = {"plain": plain, "marked": plain if marked is None else marked}
        self._slowed = slowed

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        events = self._traced("marked", step, batches)
        waits = sum(one["name"] == "aten::item" for one in events)
        return with_markers(events, *([12] * waits))

    def plain_profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        return self._traced("plain", step, batches)

    def _traced(
        self, kind: str, run: Step, batches: Sequence[Sequence[object]]
    ) -> list[dict[str, Any]]:
        self.profiles.append((kind, len(batches)))
        events: list[dict[str, Any]] = []
        for number, arguments in enumerate(batches):
            run(*arguments)
            self._clock_ns += round(10e6 * (self._slowed - 1))
            at = 1000.0 * number
            launch = call("cudaLaunchKernel", at + 1, correlation=number + 1)
            kernel = event("kernel", "gemm", at + 2, 990, correlation=number + 1)
            waits = waits_at(*(at + 900 + 10 * n for n in range(self._waits[kind])))
            events += [step(at, 999), launch, {**kernel, "tid": 99}, *waits]
        return events


def measured(device: TwoProfiles, seconds: float = 3600, **how: Any) -> Measurement:
    subject = Subject(step=device.step)
    return measure(
        device, subject, MeasurePlan(test="t", seconds=seconds, **how)
    ).measurement


def test_a_step_that_waits_for_nothing_is_profiled_once() -> None:
    device = TwoProfiles(plain=0)

    found = measured(device)

    assert device.profiles == [("plain", 3)]
    assert found.exact["syncs"] == 0
    assert found.times["busy_pct"].q50 > 95
    assert found.remarks == ()


def test_a_step_that_waits_is_profiled_again_for_its_lines() -> None:
    device = TwoProfiles(plain=2)

    found = measured(device)

    assert device.profiles == [("plain", 3), ("marked", 3)]
    assert found.exact["syncs"] == 2
    assert [(str(f.location), f.per_step) for f in found.findings] == [
        ("train.py:12 in step", 2)
    ]
    assert found.remarks == ()


@pytest.mark.parametrize(("plain", "marked"), [(1, 3), (3, 1)])
def test_where_the_profiles_differ_the_plain_one_counts_and_it_is_said(
    plain: int, marked: int
) -> None:
    found = measured(TwoProfiles(plain=plain, marked=marked))

    assert found.exact["syncs"] == plain
    assert sum(f.per_step for f in found.findings) == plain
    assert found.remarks == (
        (
            f"a step waits {plain} times in the profile that counts and {marked} times in "
            "the one that names lines: the former is right, and lines may be missing"
        ),
    )


def test_lines_have_one_step_where_three_have_no_room() -> None:
    device = TwoProfiles(plain=1, slowed=100)

    found = measured(device, seconds=11)

    assert device.profiles[-1] == ("marked", 1)
    assert found.exact["syncs"] == 1
    assert str(found.findings[0].location) == "train.py:12 in step"


def test_without_room_for_lines_waits_are_unmeasured_and_all_else_is_not() -> None:
    """A comment on its line might allow a sync."""
    device = TwoProfiles(plain=1, slowed=200)

    found = measured(device, seconds=8)

    assert {kind for kind, _ in device.profiles} == {"plain"}
    assert "syncs" not in found.exact
    assert "a comment on its line may allow a sync" in found.missed["syncs"]
    assert found.exact["launches"] == 1
    assert "busy_pct" in found.times
    assert "no lines: the time cap left no room" in found.remarks[0]


def test_lines_that_a_budget_on_waits_needs_have_room_beyond_the_cap() -> None:
    device = TwoProfiles(plain=1, slowed=200)

    found = measured(device, seconds=8, asked=["syncs"])

    assert device.profiles[-1] == ("marked", 1)
    assert found.exact["syncs"] == 1


def test_ranks_profile_again_together_where_one_of_them_waits() -> None:
    pytest.importorskip("torch")  # ranks count collectives

    def act(rank: int, peers: ThreadPeers) -> tuple[TwoProfiles, Sequence[TraceEvent]]:
        own = TwoProfiles(plain=rank)
        device = AgreedDevice(own, peers)
        measure(device, Subject(step=own.step), MeasurePlan(test="t", seconds=3600))
        return own, device.trace

    found = together(2, act)

    for device, trace in found:
        assert device.profiles == [("plain", 3), ("marked", 3)]
        assert not [e for e in trace if e["cat"] == "python_function"]


def test_a_device_that_names_lines_for_free_is_profiled_once() -> None:
    device = TwoProfiles(plain=1)
    device.lines_take_time = False  # type: ignore[misc]

    measured(device)

    assert device.profiles == [("marked", 3)]
