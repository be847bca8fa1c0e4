"""Audited steps as a measurement: counts, findings, allowances, what is not checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.allow_sync import allow_sync
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.measure.emulated import PREDICTED_NAMES, audit
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import Finding, FindingKind, Phase
from pytest_gpuperf.model.measurement import Measurement


ITEM = "aten::_local_scalar_dense"


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    device = SimulatedDevice(str(Path(__file__).parent))
    device.enter()
    yield device
    device.leave()


def audited(
    device: SimulatedDevice,
    step: Callable[..., object],
    setup: Callable[[], object] | None = None,
    seconds: float = 60,
) -> Measurement:
    """A measurement without what has tests of its own: memory, and lines that run work."""
    subject = Subject(step=step, setup=setup)
    measurement = audit(
        device, subject, MeasurePlan(test="t", seconds=seconds)
    ).measurement
    predicted = set(PREDICTED_NAMES)
    exact = {n: v for n, v in measurement.exact.items() if n not in predicted}
    findings = tuple(
        f
        for f in measurement.findings
        if not f.held_bytes and f.kind is not FindingKind.WORK
    )
    return replace(measurement, exact=exact, findings=findings)


def seen(measurement: Measurement) -> list[tuple[str | None, int, str | None]]:
    return [(f.op, f.per_step, f.allowed) for f in measurement.findings]


def test_counts_are_those_of_a_step_and_not_of_setup_or_the_first(
    device: SimulatedDevice,
) -> None:
    weights = torch.ones(256, device="cuda")
    first = [True]

    def step(x: torch.Tensor) -> None:
        if first:
            weights.sum().item()
            first.clear()
        (weights + x.cuda()).sum().item()

    def setup() -> torch.Tensor:
        weights.sum().item()
        return torch.ones(256)

    measurement = audited(device, step, setup)

    counts = dict(measurement.exact)
    assert counts.pop("launches") > 1
    assert counts == {
        **dict.fromkeys(counts, 0),
        "syncs": 2,
        "pageable_copies": 1,
        "h2d_bytes": 1024,
    }
    assert measurement.times == {}
    assert measurement.environment.hardware.key == "simulated-cuda"
    (remark,) = measurement.remarks
    assert remark.startswith(
        "1 sync and 0 flops per step are in setup, or in what frees"
    )


def test_a_finding_says_what_where_and_why(device: SimulatedDevice) -> None:
    x = torch.ones(256, device="cuda")

    def step() -> None:
        x.sum().item()

    (finding,) = audited(device, step).findings

    assert finding == Finding(
        kind=FindingKind.SYNC,
        op=ITEM,
        api=None,
        per_step=1,
        blocked_ms=0.0,
        location=finding.location,
        reason="the CPU reads one element",
        phase=Phase.FORWARD,
    )
    assert finding.location is not None
    assert (finding.location.file, finding.location.function) == (__file__, "step")


def test_the_step_with_most_of_a_count_decides_and_it_is_said(
    device: SimulatedDevice,
) -> None:
    x = torch.ones(1, device="cuda")
    steps: list[int] = []

    def step() -> None:
        steps.append(0)
        for _ in range(2 if len(steps) == 5 else 1):
            x.item()

    measurement = audited(device, step)

    assert measurement.exact["syncs"] == 2
    assert seen(measurement) == [(ITEM, 2, None)]
    assert measurement.remarks == (
        "syncs differs from step to step: 1, 2, 1; the largest counts",
    )


def test_what_may_wait_is_found_and_never_counted(device: SimulatedDevice) -> None:
    x = torch.ones(256)

    measurement = audited(device, lambda: x.to("cuda", non_blocking=True) + 1)

    inconclusive, transfer = measurement.findings
    assert (inconclusive.kind, inconclusive.metrics) == (FindingKind.INCONCLUSIVE, ())
    assert (transfer.kind, transfer.moved_bytes) == (FindingKind.TRANSFER, 1024)
    assert transfer.metrics == ("h2d_bytes", "pageable_copies")
    assert measurement.exact["syncs"] == 0


def test_a_block_allows_up_to_its_number_each_time_it_is_entered(
    device: SimulatedDevice,
) -> None:
    x = torch.ones(1, device="cuda")

    def step() -> None:
        for _ in range(2):
            with allow_sync(2, reason="logging"):
                for _ in range(3):
                    x.item()

    measurement = audited(device, step)

    assert measurement.exact["syncs"] == 2
    assert sorted(seen(measurement), key=str) == [
        (ITEM, 2, None),
        (ITEM, 4, "logging"),
    ]


def test_a_wait_is_allowed_once_where_blocks_are_nested(
    device: SimulatedDevice,
) -> None:
    x = torch.ones(1, device="cuda")

    def read() -> None:
        x.item()

    def step() -> None:
        with allow_sync(1, reason="outer"):
            with allow_sync(1, reason="inner"):
                read()
                read()
            read()

    measurement = audited(device, step)

    assert measurement.exact["syncs"] == 1
    assert sorted(seen(measurement), key=str) == [
        (ITEM, 1, "inner"),
        (ITEM, 1, "outer"),
        (ITEM, 1, None),
    ]


def test_a_comment_allows_the_syncs_of_its_line(device: SimulatedDevice) -> None:
    x = torch.ones(1, device="cuda")

    def step() -> None:
        x.item()  # gpuperf: allow-sync it is logged

    measurement = audited(device, step)

    assert measurement.exact["syncs"] == 0
    assert seen(measurement) == [(ITEM, 1, "it is logged")]


def test_a_step_on_the_host_alone_is_not_checked(device: SimulatedDevice) -> None:
    measurement = audited(device, lambda: torch.ones(3) + 1)

    assert measurement.exact == {}
    assert set(measurement.unmeasured.values()) == {"the step never touched the GPU"}


@pytest.mark.parametrize(
    ("asked", "share", "counted"),
    [
        ((), 0.9, False),
        (("syncs",), 0.9, True),
        (("syncs",), 3.5, False),
        (("peak_allocated_bytes",), 0.6, True),
    ],
)
def test_what_is_asked_for_is_audited_beyond_the_cap(
    device: SimulatedDevice,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[str, ...],
    share: float,
    counted: bool,  # noqa: FBT001
) -> None:
    clock_ns = [0]
    x = torch.ones(4, device="cuda")
    monkeypatch.setattr(SimulatedDevice, "now_ns", lambda _: clock_ns[0])

    def step() -> None:
        clock_ns[0] += round(share * 60e9)
        x.sum().item()

    subject = Subject(step=step)
    found = audit(
        device, subject, MeasurePlan(test="t", seconds=60, asked=asked)
    ).measurement

    assert ("syncs" in found.exact, "syncs" in found.missed) == (counted, not counted)
    assert all(name in {*found.exact, *found.missed} for name in asked)
    assert clock_ns[0] <= max(3.0, share) * 60e9


def test_a_time_cap_that_leaves_no_step_is_said(device: SimulatedDevice) -> None:
    x = torch.ones(3, device="cuda")

    measurement = audited(device, lambda: x + 1, seconds=-1.0)

    assert measurement.exact == {}
    assert measurement.missed["syncs"] == (
        "the time cap was reached before this phase; raise --gpuperf-seconds"
    )


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_script_of_the_project_leaves_its_step_unchecked(
    device: SimulatedDevice,
) -> None:
    x = torch.ones(3, device="cuda")
    scripted = torch.jit.script(torch.nn.ReLU())

    measurement = audited(device, lambda: scripted(x))

    (reason,) = set(measurement.unmeasured.values())
    assert measurement.exact == {}
    assert reason.startswith(
        "only a GPU can judge torch.jit.script (test_simulated_audit.py:"
    )
    assert reason.endswith("): judged without what a script fuses")


def test_the_result_of_the_last_step_is_returned(device: SimulatedDevice) -> None:
    x = torch.ones(3, device="cuda")
    steps: list[int] = []

    def step() -> int:
        steps.append(0)
        x.add_(1)
        return len(steps)

    measured = audit(device, Subject(step=step), MeasurePlan(test="t", seconds=60))

    assert measured.result == len(steps) == 106


def test_left_the_device_leaves_nothing_behind() -> None:
    device = SimulatedDevice(".")
    device.enter()
    inside = torch.cuda.is_available()

    device.leave()

    assert (inside, torch.cuda.is_available()) == (True, False)
