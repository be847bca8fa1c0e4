"""Commands that a user is told to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..model.refresh import Refresh


def ab_command(reference: str, options: Sequence[str], test: str) -> str:
    """Return what compares *test* with *reference* again; *options* are pytest's."""
    return shlex.join(("gpuperf", "ab", reference, "--", *options, test))


def refresh_command(
    kind: Refresh,
    options: Sequence[str],
    tests: Sequence[str] = (),
    *,
    accept_drift: bool = False,
) -> str:
    """Return what refreshes *tests*, or all; *options* are those it must repeat."""
    drift = ("--gpuperf-accept-drift",) if accept_drift else ()
    update = f"--gpuperf-update={kind.value}"
    return shlex.join(("pytest", "--gpuperf", update, *drift, *options, *tests))


def accept_command(pending: str, baselines: str, tests: Sequence[str]) -> str:
    """Return what accepts *tests* of a *pending* file although they drifted.

    *baselines* is their folder where it is not the default one.
    """
    only = [part for test in tests for part in ("--only", test)]
    folder = ("--baselines", baselines) if baselines else ()
    return shlex.join(("gpuperf", "accept", "--accept-drift", *only, *folder, pending))


def measure_command(tests: Sequence[str]) -> str:
    """Return what measures *tests* and stores them, whatever they were before.

    A call of a test is measured with all of it.
    """
    nodes = dict.fromkeys(map(_test_of, tests))
    return shlex.join(("gpuperf", "refresh", "--accept-drift", *nodes))


def _test_of(call: str) -> str:
    """Return the node id of a call; the ``#`` of a parameter names none."""
    test, end, _ = call.rpartition("]#")
    if end or call.endswith("]"):
        return f"{test}]" if end else call
    return call.partition("#")[0]
