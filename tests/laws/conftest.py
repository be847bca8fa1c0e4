"""Where the laws are skipped, and how many GPUs the machine has that they simulated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


VIRTUAL = os.environ.get("GPUPERF_STUB_CLOCK") == "virtual"
"""Whether the clock is asked for; the laws fail where it is not preloaded then."""

if VIRTUAL:
    os.environ["GPUPERF_STUB_DEVICES"] = "2"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if VIRTUAL:
        return
    why = "needs the virtual clock of tests/stub_cuda: GPUPERF_STUB_CLOCK is not set"
    for item in items:  # of the whole run
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=why))
