"""Commands that reports suggest to type."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..model.baseline import Refresh
from ..model.environment import DeviceKind, Hardware
from ..model.run import nodeid_of
from ..model.verdict import Outcome
from ..visible import visible_line


_UNSEEN: Final = re.compile(r"[^\x20-\x7e]|#")


_DEVICE: Final = "--gpuperf-device="


ACCEPTABLE: Final = frozenset(
    {Outcome.REGRESSED, Outcome.NO_BASELINE, Outcome.IMPROVED}
)
"""Outcomes that disappear when the numbers of the run are the baseline."""

BASELINES: Final = "baselines"
"""The folder that a command takes if none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Where pytest was started, and the ``options`` that a command must repeat.

    Node ids name their file from ``root`` on; pytest reads what is typed from
    ``folder`` on. Each test was given at most ``seconds``.
    """

    options: tuple[str, ...] = ()
    root: Path = Path()
    folder: Path = Path()
    seconds: float = 60.0

    def typed(self, nodeid: str) -> str:
        """Return *nodeid* as it is typed in the folder."""
        if self.root == self.folder:
            return nodeid
        file, separator, rest = nodeid.partition("::")
        place = Path(os.path.relpath(self.root / file, self.folder))
        return f"{place.as_posix()}{separator}{rest}"


DEFAULT_INVOCATION: Final = Invocation()
"""``pytest`` in the root, without an option."""


def at_root(hardware: Hardware | None) -> Invocation:
    """Return how a command is typed in the root that measures on the same device."""
    return Invocation(
        options=(f"--gpuperf-device={hardware.kind.value}",) if hardware else ()
    )


def ab_command(commit: str, run: Invocation, tests: Sequence[str]) -> str:
    """Return what compares *tests*, or all of *run*, with *commit*, here and now."""
    nodes = map(run.typed, dict.fromkeys(map(nodeid_of, tests)))
    return _line(("gpuperf", "ab", commit or "COMMIT", "--", *run.options, *nodes))


MORE_SECONDS: Final = 4
"""How many times as long a test may take that had no time for any metric."""


def again_command(run: Invocation, test: str, *, longer: bool) -> str:
    """Return what measures *test* again, with more time if it takes *longer*."""
    seconds = f"--gpuperf-seconds={MORE_SECONDS * run.seconds:g}"
    more = (seconds,) if longer else ()
    return _line(("pytest", "--gpuperf", *run.options, *more, run.typed(test)))


def refresh_command(
    kind: Refresh,
    run: Invocation,
    tests: Sequence[str] = (),
    *,
    accept_drift: bool = False,
) -> str:
    """Return what refreshes *tests*, or all of *run*."""
    # With tests that are named, a refresh takes all of them unless a kind is named.
    kinds = () if tests and kind is Refresh.ALL else (f"--kind={kind.value}",)
    drift = ("--accept-drift",) if accept_drift else ()
    options = (
        option.replace(_DEVICE, "--device=", 1)
        if option.startswith(_DEVICE)
        else option
        for option in run.options
    )
    return _line(
        ("gpuperf", "refresh", *kinds, *drift, *options, *map(run.typed, tests))
    )


def prune_command(run: Invocation) -> str:
    """Return what removes baselines that no test asks for."""
    return _line(("pytest", "--gpuperf", "--gpuperf-update=all", *run.options))


def accept_command(pending: str, baselines: str, tests: Sequence[str]) -> str:
    """Return what accepts *tests* of a *pending* file although they drifted.

    *baselines* is their folder, which is named if it is not the default one.
    """
    only = [part for test in tests for part in ("--only", test)]
    folder = ("--baselines", baselines) if baselines not in {"", BASELINES} else ()
    return _line(("gpuperf", "accept", "--accept-drift", *only, *folder, pending))


def accept_lines_command(places: Sequence[tuple[str, int]]) -> str:
    """Return what accepts the tests that a line of *places* alone made worse in the last run."""
    only = [part for file, line in places for part in ("--only", f"{file}:{line}")]
    return _line(("gpuperf", "accept", *only))


def measure_command(tests: Sequence[str], kind: DeviceKind) -> str:
    """Return what measures *tests* there and stores them, whatever they were before.

    A call of a test is measured with all of it.
    """
    nodes = dict.fromkeys(map(nodeid_of, tests))
    device = f"--device={kind.value}"
    return _line(("gpuperf", "refresh", "--accept-drift", device, *nodes))


def audit_command(limit: str, program: Sequence[str]) -> str:
    """Return what exits with 1 where *program* waits more than the option *limit* allows."""
    return _line(("gpuperf", "audit", limit, *program))


def diff_command(run: Invocation, test: str) -> str:
    """Return what tries edits for the findings of *test* and prints those that help."""
    node = run.typed(nodeid_of(test))
    return _line(("gpuperf", "audit", "--diff", "-m", "pytest", "--", node))


def memory_command(options: Sequence[str], program: Sequence[str]) -> str:
    """Return what predicts the memory of *program* with *options*."""
    return _line(("gpuperf", "memory", *options, *program))


def _line(parts: Sequence[str]) -> str:
    return " ".join(map(_quoted, parts))


def _quoted(part: str) -> str:
    """Quote *part* for a shell; invisible characters as bash, zsh and ksh read them."""
    if visible_line(part) == part:
        return shlex.quote(part)
    plain = part.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{_UNSEEN.sub(_escaped, plain)}'"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in _bytes(found[0]))


def _bytes(char: str) -> bytes:
    """Return the byte of a file's name that *char* replaces, or its UTF-8."""
    try:
        return char.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return char.encode(errors="surrogatepass")
