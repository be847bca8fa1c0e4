"""Mixed precision with a layer norm by hand, and with one that stays in low precision.

A batch of 512 took 4.0 GB in float32, 4.4 with mixed precision alone and 2.9 with a fused
norm. The last ratio was 0.66; it is 0.72 here, by torch's own allocator (2.13, over stub CUDA) as
by the prediction, because autograd sums gradients in place today and a norm by hand takes less.
The rise before it is not shown: in this encoder, most of whose memory is activations, mixed
precision alone takes 0.77 of float32 (a model of weights shows the rise, in test_autocast.py). What made
that norm then, apex, is gone; ``nn.LayerNorm`` is one operation today, but autocast runs
it in float32 and keeps a copy of its input for that.
"""

from __future__ import annotations

import pytest
from claims_table import PREDICTED
from models.encoder import InLowPrecision, SpelledOut, training


@pytest.mark.claim("C9")
def test_a_norm_in_low_precision_lowers_what_mixed_precision_needs(predicted, shown):
    (alone, _), (float32, _), (fused, _), (low, _) = (
        predicted("encoder_large.py", *options)
        for options in (
            ("SpelledOut",),
            ("SpelledOut", "--float32"),
            ("LayerNorm",),
            ("InLowPrecision",),
        )
    )

    shown(round(alone), round(low), "MiB", column=PREDICTED)
    assert low / alone == pytest.approx(0.72, abs=0.03)  # 2.9 / 4.4 then
    assert low < 0.95 * fused
    assert alone / float32 == pytest.approx(0.77, abs=0.03)  # not 4.4 / 4.0


@pytest.mark.claim("C9")
def test_the_same_norm_lowers_it_on_a_gpu(gpuperf, real_gpu):
    result = gpuperf.compare(
        training(SpelledOut, real_gpu), training(InLowPrecision, real_gpu)
    )

    assert result.memory.after < 0.75 * result.memory.before
