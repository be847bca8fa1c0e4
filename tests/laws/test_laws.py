"""On the virtual clock the truth is known: the plugin's CUDA path agrees within 1 %."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from laws import LAWS, Law, ShortEpochs, on_batch
from virtual_gpu import loop_ms, steady_ms

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.dataloader import loop_over
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.measurement import Measurement


pytestmark = [pytest.mark.gpu, pytest.mark.stub]

BY_NAME = {law.name: law for law in LAWS}


@cache
def measured(name: str) -> Measurement:
    """What the plugin makes of a law's step, once per process."""
    return measured_subject(BY_NAME[name].make())


def measured_subject(subject: Subject) -> Measurement:
    device = CudaDevice.open()
    try:
        return measure(device, subject, MeasurePlan(test="t", seconds=60)).measurement
    finally:
        subject.close()


def numbers(measurement: Measurement) -> dict[str, float]:
    """Return them by the names that a law gives them."""
    syncs = [f for f in measurement.findings if f.kind is FindingKind.SYNC]
    return {
        **measurement.exact,
        "blocked_ms": sum(f.blocked_ms or 0 for f in syncs),
        **{name: times.q50 for name, times in measurement.times.items()},
    }


def each_number() -> Iterator[object]:
    for law in LAWS:
        for name in law.truth:
            yield pytest.param(law, name, id=f"{law.name}-{name}")


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_rig_obeys_the_law(law: Law) -> None:
    """It is about the rig and no code of the plugin: the truth is what a loop takes."""
    step = law.make().step

    assert steady_ms(step) == pytest.approx(law.step_ms, rel=0.01)
    assert loop_ms(step, 1) == pytest.approx(law.latency_ms, rel=0.01)


@pytest.mark.parametrize(("law", "name"), [*each_number()])
def test_the_plugin_measures_the_truth(law: Law, name: str) -> None:
    found = numbers(measured(law.name))

    assert found.get(name, 0.0) == pytest.approx(law.truth[name], rel=0.01)


def test_a_round_lasts_three_tenths_of_a_second() -> None:
    """By the time of a step that the warm-up waited for, 28 ms, and of nothing else."""
    for name in ("gpu bound", "arguments that the gpu makes"):
        assert measured(name).round_steps == 11


def test_work_that_outlasts_the_current_stream_is_remarked_on() -> None:
    """Events of the current stream do not see it, and the clock of the host does."""
    said = {
        name: any("other streams or devices work longer" in r for r in found.remarks)
        for name in ("side stream outlasts the main one", "gpu bound")
        for found in [measured(name)]
    }

    assert said == {"side stream outlasts the main one": True, "gpu bound": False}


def test_a_replayed_graph_is_one_launch_of_all_its_kernels() -> None:
    assert measured("replayed graph").exact["launches"] == 1


def test_the_beginning_of_an_epoch_is_no_wait_for_a_batch() -> None:
    found = measured_subject(loop_over(ShortEpochs(), on_batch))

    assert found.times["loader_wait_pct"].q50 == pytest.approx(100 * 12 / 13, rel=0.01)
    assert any("the first batch of an epoch takes 512 ms" in r for r in found.remarks)
