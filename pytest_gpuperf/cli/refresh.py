"""``gpuperf refresh``: measure with pytest and accept what it measured."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise, repeat
from math import inf
from typing import Final

from ..errors import ErrorId, UsageError
from ..model.baseline import LEAST_GAP, Refresh
from ..sharing.processes import EXIT_INTERRUPTED, interrupts_left_to_child, shell_code
from .shared_options import add_device_argument, count, device_options, typed


REST: Final = "[pytest arguments...]"

GAP_MINUTES: Final = 60.0
"""Time between sessions where none is given: heat and clocks have settled by then.

Other days tell more: a driver or a neighbour changes from one to the next.
"""

SECONDS_OF_MINUTE: Final = 60.0

LEAST_MINUTES: Final = LEAST_GAP.total_seconds() / SECONDS_OF_MINUTE

GOES_ON: Final = frozenset({0, 1})
"""Exit codes of pytest after which the next session is measured: tests may have failed."""

NOT_MEANT: Final = frozenset({"--deselect", "--ignore"})
"""Options of pytest that name tests to leave out."""

OTHERS_STAY: Final = "refreshing what has no baseline; name tests or files, or --kind=all, to replace one"

REFRESH_KINDS: Final = ", ".join(kind.value for kind in Refresh)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options with a short name here; everything else is pytest's."""
    parser.add_argument(
        "--kind",
        type=typed(f"one of {REFRESH_KINDS}", Refresh),
        metavar="KIND",
        help=f"baselines to replace: {REFRESH_KINDS} "
        "(default: all if tests or their files are named or drift is accepted, else "
        "missing)",
    )
    add_device_argument(parser)
    parser.add_argument(
        "--sessions",
        type=count,
        metavar="N",
        help="measure in N sessions, with a gap between them, and add their runs to the "
        "baselines; missing ones are stored (default kind: evidence)",
    )
    parser.add_argument(
        "--gap",
        type=typed(
            f"{LEAST_MINUTES:g} minutes or more, as sessions that are closer count as one",
            float,
            lambda minutes: LEAST_MINUTES <= minutes < inf,
        ),
        default=GAP_MINUTES,
        metavar="MINUTES",
        help=f"time from the end of a session to the next (default: {GAP_MINUTES:g})",
    )
    parser.add_argument(
        "--accept-drift",
        action="store_true",
        help="store numbers that got worse, too, as the new reference",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run pytest, once a session, and return its exit code as a shell would give it."""
    is_partial = arguments.sessions or arguments.kind not in {None, Refresh.ALL}
    accepts_drift = arguments.accept_drift
    if accepts_drift and is_partial:
        msg = (
            "--accept-drift: found --kind or --sessions, expected it alone or with "
            "--kind=all: it replaces stored baselines"
        )
        raise UsageError(msg, ErrorId.GP102)
    if arguments.sessions is None:
        kind = arguments.kind or _usual_kind(rest)
        if rest and kind is Refresh.MISSING and not (arguments.kind or accepts_drift):
            sys.stdout.write(f"gpuperf: {OTHERS_STAY}\n")
            sys.stdout.flush()
        return _measured(arguments, kind, rest)
    # What a session has stored stays.
    kinds = repeat(Refresh.EVIDENCE, arguments.sessions - 1)
    worst = 0
    for turn, kind in enumerate((arguments.kind or Refresh.EVIDENCE, *kinds), 1):
        if turn > 1 and not _is_over(turn, arguments):
            return EXIT_INTERRUPTED
        code = _measured(arguments, kind, rest)
        worst = max(worst, code)
        if code not in GOES_ON:
            break
    return worst


def _is_over(number: int, arguments: argparse.Namespace) -> bool:
    """Wait till session *number* begins; return false if Ctrl-C ends that."""
    done = f"gpuperf: {number - 1} of {arguments.sessions} sessions are over"
    sys.stdout.write(
        f"{done}, the next begins in {arguments.gap:g} minutes; Ctrl-C keeps what is "
        "stored\n"
    )
    sys.stdout.flush()
    try:
        time.sleep(SECONDS_OF_MINUTE * arguments.gap)
    except KeyboardInterrupt:
        sys.stdout.write(f"{done}; the same command adds more, also on another day\n")
        return False
    return True


def _measured(arguments: argparse.Namespace, kind: Refresh, rest: Sequence[str]) -> int:
    which = "drift" if arguments.accept_drift else kind.value
    with interrupts_left_to_child():
        code = subprocess.run(  # noqa: S603 - the user's own arguments, no shell
            [
                # The same interpreter: `pytest` on the path may be of another
                # environment.
                *(sys.executable, "-m", "pytest"),
                *("--gpuperf", f"--gpuperf-update={which}"),
                *device_options(arguments),
                *rest,
            ],
            check=False,
        ).returncode
    return shell_code(code)


def _usual_kind(rest: Sequence[str]) -> Refresh:
    """Choose ALL, which also takes what regressed, only if tests or files are named."""
    named = any(
        ("::" in argument or argument.endswith(".py")) and not argument.startswith("-")
        for before, argument in pairwise(("", *rest))
        # What follows --deselect or --ignore is not meant.
        if before not in NOT_MEANT
    )
    return Refresh.ALL if named else Refresh.MISSING
