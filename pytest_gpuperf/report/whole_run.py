"""What is said once for the whole run, not once a test."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.refresh import Refresh
from ..model.suite import SuiteVerdict
from ..model.verdict import TestVerdict
from .command import refresh_command
from .counts import MOST_NAMES
from .numbers import join_fitting
from .terminal import Line
from .terminal import Role


def moved_line(moved: Sequence[TestVerdict], options: Sequence[str]) -> Line:
    """One verdict for the run: exact metrics moved together with torch's version."""
    then, now = next(v.changed["torch"] for v in moved if "torch" in v.changed)
    command = refresh_command(Refresh.ALL, options, accept_drift=True)
    tests = "1 test" if len(moved) == 1 else f"{len(moved)} tests"
    return Line(
        text=(
            f"gpuperf: the environment changed: torch {then} -> {now} moved exact "
            f"metrics of {tests}; check them, then accept with: {command}"
        ),
        role=Role.BAD,
    )


def skipped_line(files: Sequence[str]) -> Line:
    """Name *files* that may have looked for a GPU where pytest collects, beside none."""
    which = "1 file skipped itself"
    if len(files) > 1:
        which = f"{len(files)} files skipped themselves"
    return Line(
        text=(
            f"gpuperf: {which} while collected, and no test there was looked at: "
            f"{join_fitting(files, MOST_NAMES)}; where a GPU was looked for, let "
            "pytest.mark.skipif ask, which sees the pretend one"
        ),
        role=Role.WARN,
    )


def suite_line(suite: SuiteVerdict) -> Line:
    """One verdict for the run: the times of its tests moved together."""
    return Line(text=f"gpuperf: {suite.because}", role=Role.WARN)
