"""Counts and sizes have their share of the time cap, whatever times may need."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from scripted_project import ScriptedProject, otherwise
from scripted_steps import Clockwork

from pytest_gpuperf.devices.base import MemoryReading, Step
from pytest_gpuperf.devices.compile import CompiledCode
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.measurement import Measurement


CAP_SECONDS = 60.0

EXACT = ("peak_allocated_bytes", "growth_bytes", "syncs", "graph_breaks", "recompiles")


class Counting(Clockwork):
    """Counts all that a budget can ask for; its steps are *watched* times as long when
    they are watched."""

    def __init__(self, step_ms: Callable[[int], float], watched: float = 1.0) -> None:
        super().__init__(step_ms)
        self._watched = watched

    def measure_memory(
        self,
        step: Step,
        arguments: Sequence[object],
    ) -> MemoryReading:
        start_ns = self.now_ns()
        step(*arguments)
        self._clock_ns += round((self._watched - 1) * (self.now_ns() - start_ns))
        return MemoryReading(exact={"peak_allocated_bytes": 2**20}, end_bytes=0)

    def compiled(self, run: Callable[[], object] | None) -> CompiledCode:
        if run is not None:
            run()
        return CompiledCode()

    @property
    def seconds(self) -> float:
        return self.now_ns() / 1e9


def measured(device: Counting, *asked: str) -> Measurement:
    return measure(
        device,
        Subject(step=device.step),
        MeasurePlan(test="step", seconds=CAP_SECONDS, asked=asked),
    ).measurement


def steady(share: float) -> Callable[[int], float]:
    return lambda _: share * CAP_SECONDS * 1e3


def growing(first_ms: float, factor: float) -> Callable[[int], float]:
    return lambda step: first_ms * factor**step


def random_like(low_ms: float, high_ms: float) -> Callable[[int], float]:
    return lambda step: low_ms if step * 7919 % 3 else high_ms


UNSTEADY = {
    "a step of 150 ms that becomes 2 percent longer each time": growing(150.0, 1.02),
    "a step of 1 s, each third one of 4 s": random_like(1000.0, 4000.0),
    "a step of 0.2 s, each third one of 0.9 s": random_like(200.0, 900.0),
}


@pytest.mark.parametrize("step_ms", UNSTEADY.values(), ids=UNSTEADY)
def test_a_warm_up_that_never_ends_leaves_counts_their_share(
    step_ms: Callable[[int], float],
) -> None:
    device = Counting(step_ms)

    found = measured(device)

    assert {"peak_allocated_bytes", "syncs", "graph_breaks"} <= set(found.exact)
    assert set(EXACT) <= {*found.exact, *found.missed}
    assert any("never became steady" in why for why in found.dirty)
    assert device.seconds <= 1.1 * CAP_SECONDS


@pytest.mark.parametrize("share", [0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2])
def test_a_step_of_up_to_a_fifth_of_the_cap_is_counted_within_it(share: float) -> None:
    device = Counting(steady(share))

    found = measured(device)

    counted = {"peak_allocated_bytes", "syncs", "graph_breaks", "recompiles"}
    assert counted <= set(found.exact)
    assert "growth_bytes" in {*found.exact, *found.missed}
    assert found.times["step_ms"].q50 == pytest.approx(share * CAP_SECONDS * 1e3)
    assert device.seconds <= CAP_SECONDS * (1 + share)


@pytest.mark.parametrize(
    ("share", "asked"),
    [
        (0.25, EXACT),
        (0.35, EXACT),
        (0.49, ("peak_allocated_bytes", "syncs", "graph_breaks")),
        (0.51, EXACT),
        (0.6, ("peak_allocated_bytes", "syncs", "graph_breaks")),
        (0.8, ("peak_allocated_bytes", "syncs")),
        (0.99, ("peak_allocated_bytes", "syncs")),
        (0.99, ("syncs",)),
        (0.99, ("peak_allocated_bytes",)),
        (0.99, ("recompiles",)),
        (0.75, ("growth_bytes",)),
        (1.2, ("syncs",)),
        (1.4, ("graph_breaks",)),
    ],
)
def test_what_is_asked_for_is_counted_of_one_slow_step(
    share: float, asked: tuple[str, ...]
) -> None:
    device = Counting(steady(share))

    found = measured(device, *asked)

    needs_three_steps = {"growth_bytes"} if share > 0.5 else set()
    assert set(asked) - needs_three_steps <= set(found.exact)
    assert device.seconds <= 3 * CAP_SECONDS
    assert all(name in {*found.exact, *found.missed} for name in asked)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_nothing_is_counted_beyond_the_cap_that_nobody_asks_for(share: float) -> None:
    device = Counting(steady(share))

    found = measured(device)

    assert found.exact == {}
    assert set(EXACT) <= set(found.missed)
    assert device.seconds <= 3 * CAP_SECONDS  # two more steps say how slow it is


@pytest.mark.parametrize("share", [3.0, 10.0])
def test_a_step_that_took_three_caps_by_itself_is_not_run_again(share: float) -> None:
    device = Counting(steady(share))

    found = measured(device, *EXACT)

    assert device.steps == 1
    assert set(EXACT) <= set(found.missed)


@pytest.mark.parametrize("watched", [5.0, 20.0, 100.0])
def test_steps_that_are_watched_slowly_leave_the_trace_its_turn(watched: float) -> None:
    device = Counting(steady(0.005), watched)

    found = measured(device, "peak_allocated_bytes", "syncs")

    assert {"peak_allocated_bytes", "syncs"} <= set(found.exact)
    assert device.seconds <= 3 * CAP_SECONDS


def test_a_first_step_that_compiles_for_half_a_minute_is_warmed_up_and_counted() -> (
    None
):
    device = Counting(lambda step: 29_000.0 if step == 1 else 10.0)

    found = measured(device)

    assert found.dirty == ()
    assert found.times["step_ms"].q50 == 10.0
    assert set(found.exact) == set(EXACT)


def test_a_first_step_that_compiles_for_most_of_the_cap_is_counted_if_asked() -> None:
    device = Counting(lambda step: 50_000.0 if step == 1 else 10.0)

    found = measured(device, *EXACT)

    assert set(found.exact) == set(EXACT)
    assert device.seconds < CAP_SECONDS


def test_machines_that_disturb_each_round_do_not_take_the_share_of_counts() -> None:
    device = Counting(steady(0.1))
    device.troubles = lambda _: "another process computes on the GPU"

    found = measured(device)

    assert {"peak_allocated_bytes", "syncs"} <= set(found.exact)
    assert device.seconds <= 1.1 * CAP_SECONDS


SLOW = """
@gpuperf.budget(syncs=0)
def test_syncs(gpuperf): gpuperf(int)
@gpuperf.budget(growth_mb=0)
def test_growth(gpuperf): gpuperf(int)
def test_peak(gpuperf): gpuperf(int, mem_mb=900)

@gpuperf.budget(syncs=0)
def test_lifted_by_the_call(gpuperf): gpuperf(int, syncs=None)
@gpuperf.budget(syncs=0, on="*H200*")
def test_meant_for_other_hardware(gpuperf): gpuperf(int)
@gpuperf.budget(pageable_copies=0)
def test_what_the_device_cannot_measure(gpuperf): gpuperf(int)

@gpuperf.budget(syncs=0, mem_mb=50)
def test_over(gpuperf): gpuperf(int)
def test_became_slow(gpuperf): gpuperf(int)
"""
UNCHECKED = ("test_syncs", "test_growth", "test_peak")
PASSES = (
    *("test_lifted_by_the_call", "test_meant_for_other_hardware"),
    "test_what_the_device_cannot_measure",
)
FAILS = {
    "test_over": (
        *("failure", "OVER LIMIT syncs: 2 per step, limit 0"),
        "OVER LIMIT mem_mb: 100.0 MiB",
    ),
    "test_became_slow": ("failure", "NEW SYNCS: 3 per step, was 0"),
}


@pytest.mark.parametrize("ci", ["", "1"])
def test_a_budget_that_no_run_measured_fails_in_ci_and_warns_elsewhere(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    monkeypatch.setenv("CI", ci)
    project.file(SLOW)
    project.store("test_became_slow")
    project.script(
        {
            "test_over": {"step_ms": 59_000.0, "syncs": 2, "mem_mb": 100},
            "test_became_slow": {"step_ms": 59_000.0, "syncs": 3},
            "*": {"step_ms": 600_000.0, "leak_mb": 0.0},
        }
    )

    cases = project.cases("-o", "gpuperf_missing_baseline=warn")

    ended = "failure" if ci else "passed"
    wanted = dict.fromkeys(UNCHECKED, (ended,)) | dict.fromkeys(PASSES, ("passed",))
    assert otherwise(cases, {**wanted, **FAILS}) == []
    said = " ".join(project.shown.stdout.str().split())
    for metric in ("syncs", "memory growth", "peak memory"):
        assert f"INCONCLUSIVE {metric}" in said
    assert len(set(re.findall(r"(\w+=\d+) was not checked: the time cap", said))) == 3


def test_a_time_that_its_baseline_lacks_is_named_by_a_warning_and_the_last_line(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.file("def test_step(gpuperf): gpuperf(lambda: None)\n")
    project.store("test_step", times={})
    project.script({"*": {"step_ms": 400.0}})
    monkeypatch.setenv("CI", "1")

    result = project.run()

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*NO BASELINE: step time*",
            "gpuperf: 1 passed on *not in a test's baseline: step_ms",
        ]
    )
    project.run("--override-ini=gpuperf_missing_baseline=every-metric").assert_outcomes(
        failed=1
    )
