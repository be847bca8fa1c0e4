"""``gpuperf audit``: the syncs of a script, on a machine without a GPU."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from ..devices.pretend.record import StepAudit
from ..errors import UsageError
from ..model.codec import decode
from ..report.audit_json import audit_document
from ..report.audit_table import audit_lines
from .audited import START
from .audited import Audited
from .audited import Request
from .program import Program
from .program_arguments import REST
from .program_arguments import add_program
from .program_arguments import program_of
from .program_arguments import root_of
from .program_process import Output
from .program_process import run_program
from .program_process import unfinished


SUMMARY: Final = "find the syncs of a script, on a pretend GPU"

FAILED: Final = 1

__all__ = ["REST", "SUMMARY", "add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program and how to judge it."""
    add_program(parser)
    parser.add_argument(
        "--max-syncs",
        type=_count,
        metavar="N",
        help="exit with 1 where the host waits more than N times (default: no limit)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object; the script's own output goes to standard error",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run the program, print what was found, and return the exit code."""
    program = program_of(arguments, rest)
    root = root_of(arguments.root, program)
    output = Output.ERRORS if arguments.json else Output.SHOWN
    code, audited = _audited(program, root, output)
    if audited is None or audited.audit is None:
        sys.stderr.write(f"gpuperf: {unfinished(program, code)}\n")
        return code or FAILED
    sys.stdout.write(_text(audited.audit, audited.notes, as_json=arguments.json))
    objection = _objection(audited.audit, arguments.max_syncs)
    if objection is not None:
        sys.stderr.write(f"gpuperf: {objection}\n")
    return code or (FAILED if objection is not None else 0)


def _count(text: str) -> int:
    if not text.isdecimal():
        msg = f"expected a whole number from 0 on, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _audited(
    program: Program, root: Path, output: Output
) -> tuple[int, Audited | None]:
    """Run *program* in a process of its own: its exit code and what was found."""
    request = partial(Request, program=program, root=str(root))
    code, report = run_program(START, request, output)
    if report is None:
        return code, None
    audited = decode(Audited, report)
    if audited.refusal is not None:
        raise UsageError(audited.refusal)
    return code, audited


def _text(audit: StepAudit, notes: Sequence[str], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(audit_document(audit, notes), indent=2) + "\n"
    return "".join(f"{line}\n" for line in audit_lines(audit, notes, Path.cwd()))


def _objection(audit: StepAudit, most: int | None) -> str | None:
    """Why the script does not pass under ``--max-syncs``, if it does not."""
    if most is None:
        return None
    if not audit.touched_gpu:
        return f"nothing ran on the GPU, so --max-syncs={most} could not be judged"
    syncs = audit.totals.syncs
    return f"{syncs} syncs are more than --max-syncs={most}" if syncs > most else None
