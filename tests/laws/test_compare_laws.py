"""Two steps in turns: the true ratio of the two is known, and must be found."""

from __future__ import annotations

import pytest
from laws import LAWS, Law

from pytest_gpuperf.compare_steps.measure import compare_steps
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.model.ab import Answer


pytestmark = [pytest.mark.gpu, pytest.mark.stub]

BY_NAME = {law.name: law for law in LAWS}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("gpu bound", "item at the end"),
        ("item in the middle", "two halves"),
        ("gpu bound", "host bound"),
        ("launch bound", "launch bound as a graph"),
        ("side stream outlasts the main one", "wait in autograd s thread"),
        ("slow iterable", "loaded before"),
    ],
)
def test_the_ratio_of_two_steps_is_the_true_one(before: str, after: str) -> None:
    laws = BY_NAME[before], BY_NAME[after]
    first, second = (law.make() for law in laws)

    found = compare_steps(
        CudaDevice.open(), first, second, seconds=3600, tolerance=0.02, detect=0.1
    )

    assert found.before_ms == pytest.approx(laws[0].step_ms, rel=0.01)
    assert found.after_ms == pytest.approx(laws[1].step_ms, rel=0.01)
    assert found.answer is answer_of(*laws)


def answer_of(before: Law, after: Law) -> Answer:
    if before.step_ms == after.step_ms:
        return Answer.SAME
    return Answer.SLOWER if after.step_ms > before.step_ms else Answer.FASTER
