"""A loop that must be fed: how long its step takes, and how long it waits for batches."""

from __future__ import annotations

import time

import pytest


def rest_of_a_step():
    """Take 8 ms, which a larger model than those of these examples would compute."""
    time.sleep(0.008)


def waited_pct(gpuperf):
    """Return the share of waiting in the loop that was measured last."""
    if gpuperf.measurement is None:
        pytest.skip("how long a loop waits is measured by pytest --gpuperf")
    return gpuperf.measurement.times["loader_wait_pct"].mean
