"""The words of the project say and compute what their names promise."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Final

import pytest
from builders import a_measurement, a_test, a_verdict
from hypothesis import given, strategies as st

from pytest_gpuperf.judge.readings import metric_of
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import (
    CAPABILITIES,
    Capability,
    DeviceKind,
    Hardware,
)
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.measurement import MOST_SAMPLES, Distribution, thinned
from pytest_gpuperf.model.metrics import (
    LATENCY_MS,
    METRICS,
    MIB,
    OCCASIONAL_SYNCS,
    PEAK_ALLOCATED,
    STEP_MS,
    SYNCS,
    Metric,
    limited_by,
)
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict


CPU = Hardware(kind=DeviceKind.CPU, name="Core i7")
times = st.floats(min_value=1e-3, max_value=1e6)
several = st.lists(times, min_size=2, max_size=30)


def verdict(outcome: Outcome, *, settled: bool = True) -> Verdict:
    return a_verdict("step_ms", outcome, None, None, settled=settled)


def judged(*verdicts: Verdict) -> TestVerdict:
    return a_test(verdicts=verdicts, test="test_step")


def test_a_distribution_of_eleven_known_samples() -> None:
    distribution = Distribution.of([11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6])

    assert distribution == Distribution(q10=2, q25=3.5, q50=6, mean=6, samples=11)


@given(several)
def test_quantiles_are_those_of_the_standard_library(samples: list[float]) -> None:
    distribution = Distribution.of(samples)

    deciles = statistics.quantiles(samples, n=10, method="inclusive")
    quartiles = statistics.quantiles(samples, n=4, method="inclusive")
    assert distribution.q10 == pytest.approx(deciles[0])
    assert distribution.q25 == pytest.approx(quartiles[0])
    assert distribution.q50 == pytest.approx(quartiles[1])


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (DeviceKind.CUDA, "NVIDIA H200", "cuda-nvidia-h200"),
        (DeviceKind.CUDA, "NVIDIA A100 MIG 1g.5gb", "cuda-nvidia-a100-mig-1g-5gb"),
        (DeviceKind.CPU, "Intel(R) Xeon(R), 2 cores", "cpu-intel-r-xeon-r-2-cores"),
        (DeviceKind.CPU, "../../etc/passwd", "cpu-etc-passwd"),
        (DeviceKind.SCRIPTED, "", "scripted"),
        (DeviceKind.SCRIPTED, "---", "scripted"),
    ],
)
def test_the_key_of_hardware_is_a_plain_file_name(
    kind: DeviceKind, name: str, key: str
) -> None:
    assert Hardware(kind=kind, name=name).key == key


def test_every_kind_of_device_says_what_it_can_do() -> None:
    asked = {found for has in CAPABILITIES.values() for found in has}

    assert set(CAPABILITIES) == set(DeviceKind)
    assert asked == set(Capability)


@pytest.mark.parametrize(
    ("capability", "kinds"),
    [
        (Capability.CLOCK, {"cuda", "cpu", "scripted"}),
        (Capability.GPU_TIMES, {"cuda", "scripted"}),
        (Capability.KERNELS, {"cuda"}),
        (Capability.HOST_WORK, {"cpu"}),
        (Capability.ALLOCATOR, {"cuda", "scripted"}),
        (Capability.FORECAST, {"simulated"}),
    ],
)
def test_a_capability_tells_kinds_of_device_apart(
    capability: Capability, kinds: set[str]
) -> None:
    assert {kind.value for kind in DeviceKind if kind.has(capability)} == kinds


@pytest.mark.parametrize(
    ("exact", "text"),
    [
        (True, "train.py:12 in step"),
        (False, "train.py:12 in step (line unknown, this is the def)"),
    ],
)
def test_a_location_says_whether_its_line_is_exact(*, exact: bool, text: str) -> None:
    location = Location(file="train.py", line=12, function="step", exact=exact)

    assert str(location) == text


@pytest.mark.parametrize(
    ("keyword", "metrics"),
    [
        ("ms", (STEP_MS,)),
        ("latency_ms", (LATENCY_MS,)),
        ("mem_mb", (PEAK_ALLOCATED,)),
        ("syncs", (SYNCS, OCCASIONAL_SYNCS)),
        ("speed", ()),
    ],
)
def test_a_budget_keyword_limits_its_metrics(
    keyword: str, metrics: tuple[Metric, ...]
) -> None:
    assert limited_by(keyword) == metrics


MOST_METRICS: Final = 30


def test_there_are_few_metrics() -> None:
    assert len(METRICS) <= MOST_METRICS


@pytest.mark.parametrize(
    ("name", "floor", "tolerance", "error"),
    [
        ("peak_allocated_bytes", MIB / 64, 0.005, 0.05),
        ("peak_reserved_bytes", 0, 0, 0.10),
        ("launches", 0, 0, 0),
        ("syncs", 0, 0, 0),
    ],
)
def test_a_predicted_number_is_the_metric_without_noise(
    name: str, floor: float, tolerance: float, error: float
) -> None:
    found = metric_of(DeviceKind.SIMULATED, name)

    assert (found.floor, found.tolerance, found.error) == (floor, tolerance, error)
    assert metric_of(DeviceKind.CUDA, name) == METRICS[name]


@pytest.mark.parametrize("outcome", Outcome)
def test_only_a_regression_and_a_broken_budget_fail_a_test(outcome: Outcome) -> None:
    assert outcome.fails == (outcome.name in {"REGRESSED", "OVER_BUDGET"})


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (Outcome.REGRESSED, Outcome.OVER_BUDGET),
        (Outcome.OVER_BUDGET, Outcome.INCONCLUSIVE),
        (Outcome.INCONCLUSIVE, Outcome.IMPROVED),
        (Outcome.IMPROVED, Outcome.PASS),
        (Outcome.NO_BASELINE, Outcome.NOT_CHECKED),
    ],
)
def test_the_outcome_of_a_test_is_its_worst(worse: Outcome, better: Outcome) -> None:
    test = judged(verdict(better), verdict(worse), verdict(better))

    assert test.outcome is worse


@pytest.mark.parametrize("unchecked", [Outcome.NO_BASELINE, Outcome.NOT_CHECKED])
def test_what_was_not_checked_does_not_hide_what_was(unchecked: Outcome) -> None:
    test = judged(verdict(unchecked), verdict(Outcome.PASS))

    assert test.outcome is Outcome.PASS


def test_a_test_without_verdicts_is_not_checked_and_settled() -> None:
    test = judged()

    assert (test.outcome, test.settled) == (Outcome.NOT_CHECKED, True)


@pytest.mark.parametrize("settled", [True, False])
def test_one_open_verdict_leaves_its_test_open(*, settled: bool) -> None:
    test = judged(verdict(Outcome.PASS), verdict(Outcome.PASS, settled=settled))

    assert test.settled is settled


@given(st.lists(times, max_size=MOST_SAMPLES))
def test_few_samples_are_all_kept(samples: list[float]) -> None:
    assert thinned(samples) == tuple(samples)


@given(st.integers(min_value=MOST_SAMPLES, max_value=5_000))
def test_many_samples_are_thinned_evenly_from_the_first_to_the_last(count: int) -> None:
    kept = thinned(range(count))

    gaps = {after - before for before, after in pairwise(kept)}
    assert (len(kept), kept[0], kept[-1]) == (MOST_SAMPLES, 0, count - 1)
    assert max(gaps) - min(gaps) <= 1


def test_a_run_summary_keeps_the_numbers_and_not_the_rest() -> None:
    measurement = a_measurement(
        None,
        "throttled",
        on=CPU,
        times={"step_ms": Distribution.of([1.0, 2.0])},
        exact={"syncs": 3},
        samples={"step_ms": (1.0, 2.0)},
    )

    assert RunSummary.of(measurement) == RunSummary(
        times={"step_ms": Distribution.of([1.0, 2.0])}, exact={"syncs": 3}
    )
