"""Where memory peaks: as the backward begins, or, where it recomputes, in the optimizer."""

from __future__ import annotations

import pytest
from models.gpt2 import SMALL, Training

import pytest_gpuperf as gpuperf


def phase_of_peak(gpuperf):
    if gpuperf.measurement is None:
        pytest.skip("pytest runs without --gpuperf")
    peaks = [
        f.phase.value for f in gpuperf.measurement.findings if f.kind.value == "peak"
    ]
    if gpuperf.measurement.times:
        pytest.skip("with a clock the peak is recorded only where memory fails a test")
    assert len(peaks) == 1
    return peaks[0]


@pytest.mark.claim("M4")
@gpuperf.budget(syncs=0)
def test_recomputing_moves_the_peak_to_the_optimizer(gpuperf):
    gpuperf(Training(SMALL, gpuperf.device, foreach=True), name="plain")
    plain = phase_of_peak(gpuperf)
    recomputing = Training(
        SMALL, gpuperf.device, micro_batches=2, checkpointing=True, foreach=True
    )
    gpuperf(recomputing, name="recomputing")

    assert plain in {"forward", "backward"}  # where one ends and the other begins
    assert phase_of_peak(gpuperf) == "optimizer"
