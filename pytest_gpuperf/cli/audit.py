"""``gpuperf audit``: the syncs of a script, on a machine without a GPU."""

from __future__ import annotations

import argparse
import atexit
import json
import linecache
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Final

from ..devices.pretend import pretend_gpu
from ..devices.pretend.audit_record import StepAudit
from ..errors import ErrorId
from ..errors import UsageError
from ..model.codec import decode
from ..model.codec import encode
from ..report.command import audit_command
from ..report.json.audit import audit_document
from ..report.screen.audit import audit_lines
from ..visible import printed
from .script import Program
from .script import load
from .script_process import REST
from .script_process import Output
from .script_process import add_program
from .script_process import program_of
from .script_process import root_of
from .script_process import run_program
from .script_process import run_tidily
from .script_process import start_of
from .script_process import unfinished


if TYPE_CHECKING:
    from ..devices.pretend.gpu import ProgramAudit


# The process that ``gpuperf audit`` starts: it becomes the script's.

START: Final = start_of(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """A program to audit, the folder of its lines, and the file to report in."""

    program: Program
    root: str
    report: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What the process found, or why it did not start the program.

    ``notes`` say what else must be known to read what was found.
    """

    audit: StepAudit | None = None
    notes: tuple[str, ...] = ()
    refusal: str | None = None


def main() -> None:
    """Audit what the command line asks for, until this process ends."""
    request: AuditRequest = decode(AuditRequest, json.loads(sys.argv[1]))
    pretence = ExitStack()
    gpu = pretence.enter_context(pretend_gpu(request.root))
    from ..devices.pretend.gpu import ProgramAudit

    program = ProgramAudit(gpu)
    pretence.callback(program.close)
    try:
        loaded = load(request.program)
    except UsageError as error:
        _write(request.report, Audited(refusal=str(error)))
        return
    # The functions registered by the program and its threads come first.
    atexit.register(_finish, program, pretence, request.report, os.getpid())
    # One that is ignored, as a parent can ask for, stays so.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        end = partial(_end, program, request.report, os.getpid())
        signal.signal(signal.SIGTERM, end)
    run_tidily(loaded)


def _finish(
    program: ProgramAudit, pretence: ExitStack, report: str, process: int
) -> None:
    """Leave the findings in *report*, unless this is a fork of the process."""
    # A fork, such as a DataLoader's worker, inherits the exit handlers.
    if os.getpid() == process:
        _leave_findings(program, report)
        pretence.close()


def _end(
    program: ProgramAudit, report: str, process: int, number: int, _: object
) -> None:
    """Leave what was found so far, and end by the signal *number* all the same."""
    # Another one would cut off the report: ``timeout`` sends two.
    signal.signal(number, signal.SIG_IGN)
    if os.getpid() == process:
        name = signal.Signals(number).name
        _leave_findings(program, report, f"{name} ended it: this is what it did before")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _leave_findings(program: ProgramAudit, report: str, *notes: str) -> None:
    from ..devices.pretend.tensor_values import INSIDES

    switched = (INSIDES.switched,) if INSIDES.switched else ()
    _write(report, Audited(audit=program.audit(), notes=(*switched, *notes)))


def _write(report: str, audited: Audited) -> None:
    Path(report).write_text(json.dumps(encode(audited)), encoding="utf-8")


AUDIT_FAILED: Final = 1

__all__ = ["REST", "add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program and how to judge it."""
    add_program(parser)
    parser.add_argument(
        "--max-syncs",
        type=_count,
        metavar="N",
        help="exit with 1 if the CPU waits more than N times (default: no limit)",
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
        return code or AUDIT_FAILED
    sys.stdout.write(
        _text(audited.audit, audited.notes, program, as_json=arguments.json)
    )
    objection = _objection(audited.audit, arguments.max_syncs)
    if objection is not None:
        sys.stderr.write(f"gpuperf: {objection}\n")
    return code or (AUDIT_FAILED if objection is not None else 0)


def _count(text: str) -> int:
    if not text.isdecimal():
        msg = f"expected a whole number from 0 on, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _audited(
    program: Program, root: Path, output: Output
) -> tuple[int, Audited | None]:
    """Run *program* in a process of its own: its exit code and what was found."""
    request = partial(AuditRequest, program=program, root=str(root))
    code, report = run_program(START, request, output)
    if report is None:
        return code, None
    audited = decode(Audited, report)
    if audited.refusal is not None:
        raise UsageError(audited.refusal, ErrorId.GP110)
    return code, audited


def _text(
    audit: StepAudit, notes: Sequence[str], program: Program, *, as_json: bool
) -> str:
    if as_json:
        return json.dumps(audit_document(audit, notes), indent=2) + "\n"
    command = audit_command(
        audit.totals.syncs,
        program.name,
        program.arguments,
        is_module=program.is_module,
    )
    lines = audit_lines(
        audit, notes, Path.cwd(), line_of=linecache.getline, command=command
    )
    return printed(lines)


def _objection(audit: StepAudit, most: int | None) -> str | None:
    """Why the script does not pass under ``--max-syncs``, if it does not."""
    if most is None:
        return None
    if not audit.touched_gpu:
        return f"nothing ran on the GPU, so --max-syncs={most} could not be judged"
    syncs = audit.totals.syncs
    return f"{syncs} syncs are more than --max-syncs={most}" if syncs > most else None
