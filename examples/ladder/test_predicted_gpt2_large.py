"""The ladder of memory at the published size, predicted without a GPU.

36 layers of width 1280, a batch of 32 times 128 tokens. Each prediction also tries what
else would lower the peak, so a rung takes minutes: ``-m slow --gpuperf-seconds=600``.
"""

from __future__ import annotations

from functools import partial

import pytest
from claims import read_claims
from models.gpt2 import LADDER
from models.gpt2 import LARGE
from models.gpt2 import Training

import pytest_gpuperf as gpuperf


pytestmark = [pytest.mark.slow, gpuperf.budget(mem_mb=80 * 1024)]

RUNGS = read_claims().ladder[: len(LADDER)]


def predicted(number):
    """The rung of that number: the first by itself, the others with the one above."""
    mark = pytest.mark.claim("M2")
    if number:
        above, rung = RUNGS[number - 1 : number + 1]
        numbers = {"before": above.published_mib, "after": rung.published_mib}
        mark = pytest.mark.claim("M1", **numbers)
    return pytest.param(
        RUNGS[number], LADDER[number], marks=mark, id=RUNGS[number].name
    )


@pytest.mark.parametrize(
    ("rung", "levers"), [predicted(0), predicted(1), predicted(2), predicted(3)]
)
def test_gpt2_large_at_real_size(gpuperf, rung, levers):
    prospect = gpuperf.fits(partial(Training, LARGE, "cuda", **levers), gb=80)

    assert prospect
    assert prospect.peak_mb == pytest.approx(rung.predicted_mib, rel=0.01)
