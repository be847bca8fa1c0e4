"""What was measured, as the commands that accept it read it and choose from it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..accepting import Choice
from ..accepting import Plan
from ..accepting import enough_runs
from ..baselines.pending import pending_path
from ..errors import BaselineError
from ..errors import UsageError
from ..model.baseline import Baselines
from ..model.refresh import Refresh
from ..report.acceptance import Acceptance
from ..report.numbers import join_fitting
from ..report.wrapping import wrapped
from .stored import read_document


KINDS: Final = ", ".join(kind.value for kind in Refresh)
PREFIX: Final = "pending-"
MOST_NAMED: Final = 100
"""Characters of the tests that an error names."""

WAY_OUT: Final = "measure again with `pytest --gpuperf`, or download the file again"


def add_choice_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which of the entries are meant."""
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="accept a test, or all in a file, folder or class; * and ? stand for any "
        "characters (may be repeated; default: all)",
    )
    parser.add_argument(
        "--kind",
        type=_kinds,
        default=(Refresh.ALL,),
        metavar="KIND[,KIND]",
        help=f"accept what a refresh of this kind would: {KINDS} (default: all)",
    )
    parser.add_argument(
        "--accept-drift",
        action="store_true",
        help="accept also what drifted from its anchor beyond detect",
    )


def choice_of(arguments: argparse.Namespace) -> Choice:
    """Return what the arguments choose."""
    return Choice(
        kinds=arguments.kind,
        only=tuple(arguments.only),
        accept_drift=arguments.accept_drift,
    )


def files_in(path: Path) -> Sequence[Path]:
    """Return *path*, or the files of a folder; raise ``UsageError`` where it has none."""
    if not path.is_dir():
        return (path,)
    files = sorted(path.glob(f"{PREFIX}*.json"))
    if not files:
        msg = (
            f"{path}: holds no {PREFIX}<hardware>.json; name the folder that a run left"
        )
        raise UsageError(msg)
    return files


def read_pending(path: Path) -> Baselines:
    """Read what a run measured; raises ``BaselineError`` where *path* is no such file."""
    pending = read_document(path, WAY_OUT)
    named, own = path.name, pending_path(path.parent, pending.hardware).name
    if named.startswith(PREFIX) and named != own:
        msg = (
            f"{path}: measured on {pending.hardware.kind.value} {pending.hardware.name}, "
            f"but the name says {path.stem.removeprefix(PREFIX)}; rename it to {own}"
        )
        raise BaselineError(msg)
    return pending


def refuse_unknown_names(
    where: Path, found: Sequence[Baselines], choice: Choice
) -> None:
    """Raise ``UsageError`` where *choice* names what was not *found* in *where*."""
    known = sorted({test for pending in found for test in pending.entries})
    for name in choice.only:
        alone = Choice(only=(name,))
        if not any(map(alone.names, known)):
            msg = (
                f"--only {name!r} names no test in {where}, which holds "
                f"{join_fitting(known, MOST_NAMED) or 'none'}"
            )
            raise UsageError(msg)


def nothing_chosen(pending: Baselines, choice: Choice) -> tuple[str, ...]:
    """Say that *choice* takes nothing of *pending*."""
    named = sum(map(choice.names, pending.entries))
    kinds = " or ".join(kind.value for kind in choice.kinds)
    tests = "its test is not" if named == 1 else f"none of its {named} tests is"
    text = f"gpuperf: nothing to accept for {pending.hardware.key}: {tests} {kinds}"
    return wrapped(text if named else text.partition(": none")[0])


def acceptance_of(plan: Plan, pending: Baselines) -> Acceptance:
    """Return what the report says of *plan*."""
    enough = enough_runs(pending)
    return Acceptance(
        accepted=len(plan.entries),
        kept=len(plan.kept),
        drifted=plan.drifted,
        thin=plan.thin,
        weak=tuple(k for k, e in plan.entries.items() if len(e.runs) < enough),
        enough=enough,
    )


def _kinds(text: str) -> tuple[Refresh, ...]:
    try:
        return tuple(Refresh(word.strip()) for word in text.split(","))
    except ValueError:
        msg = f"expected some of {KINDS}, found {text!r}"
        raise argparse.ArgumentTypeError(msg) from None
