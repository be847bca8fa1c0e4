"""The examples that `make cuda` runs over stub CUDA, and those that cannot pass there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final


FOLDERS: Final = ("find_the_bug", "no_hidden_sync", "profiles")
"""What fits into some minutes on two cores; the others can be run in the same way."""

SETTINGS: Final[Mapping[str, str]] = {
    "GPUPERF_STUB_VALUES": "mirror",
    # What is larger costs more to compute on the CPU than its value is worth here; the
    # sentinels above all.
    "GPUPERF_STUB_MIRROR_MOST": "10M",
    # Of steps that take longer there are fewer in a round, and each is computed on the CPU.
    "GPUPERF_STUB_SLOWER": "300",
}

SECONDS: Final = 60
"""The time cap of a test, on that clock."""

CANNOT_PASS: Final[Mapping[str, str]] = {
    "examples/profiles/test_profiler_schedule.py::test_one_step_of_four_is_recorded_with_its_loading": (
        "compares what loading and computing take of the CPU, and on the virtual clock "
        "Python and the operations of the CPU take no time"
    ),
}
"""Why, by node id."""


def options(out: Path) -> list[str]:
    """Arguments of pytest; what is written lands below *out*."""
    return [
        *(f"examples/{folder}" for folder in FOLDERS),
        "--gpuperf",
        "--gpuperf-device=cuda",
        "--gpuperf-claims",
        f"--gpuperf-seconds={SECONDS}",
        f"--override-ini=gpuperf_baselines={out / 'no-baselines'}",
        *(f"--deselect={test}" for test in CANNOT_PASS),
    ]
