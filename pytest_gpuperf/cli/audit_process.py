"""The process that ``gpuperf audit`` starts: it becomes the script's."""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Final

from ..devices.audit_record import StepAudit
from ..devices.pretend import pretend_gpu
from ..errors import UsageError
from ..model.codec import decode
from ..model.codec import encode
from .script import Program
from .script import load
from .script_process import run_tidily
from .script_process import start_of


if TYPE_CHECKING:
    from ..devices.pretend.program_audit import ProgramAudit

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
    gpu = pretence.enter_context(pretend_gpu(request.root, whole_process=True))
    from ..devices.pretend.program_audit import ProgramAudit

    # What is there by now stays, and to look through it takes most of a collection.
    gc.freeze()
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
    from ..devices.pretend.tensor_values import BACKING

    switched = (BACKING.switched,) if BACKING.switched else ()
    also = program.notes()
    _write(report, Audited(audit=program.audit(), notes=(*switched, *also, *notes)))


def _write(report: str, audited: Audited) -> None:
    Path(report).write_text(json.dumps(encode(audited)), encoding="utf-8")
