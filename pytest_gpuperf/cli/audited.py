"""The process that ``gpuperf audit`` starts: it becomes the script's."""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Final

from ..devices.pretend import pretend_gpu
from ..devices.pretend.record import StepAudit
from ..errors import UsageError
from ..model.codec import decode
from ..model.codec import encode
from .program import Program
from .program import load
from .program_process import start_of
from .tidy import run_tidily


if TYPE_CHECKING:
    from ..devices.pretend.gpu import PretendGpu


START: Final = start_of(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A program to audit, the folder whose lines to name, and the file to report in."""

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
    request: Request = decode(Request, json.loads(sys.argv[1]))
    pretence = ExitStack()
    gpu = pretence.enter_context(pretend_gpu(request.root))
    try:
        loaded = load(request.program)
    except UsageError as error:
        _write(request.report, Audited(refusal=str(error)))
        return
    # The functions registered by the program and its threads come first.
    atexit.register(_finish, gpu, pretence, request.report, os.getpid())
    run_tidily(loaded)


def _finish(gpu: PretendGpu, pretence: ExitStack, report: str, process: int) -> None:
    """Leave the findings in *report*, unless this is a fork of the process."""
    if os.getpid() == process:
        from ..devices.pretend.insides import INSIDES

        notes = (INSIDES.switched,) if INSIDES.switched else ()
        _write(report, Audited(audit=gpu.end_step(), notes=notes))
        pretence.close()


def _write(report: str, audited: Audited) -> None:
    Path(report).write_text(json.dumps(encode(audited)), encoding="utf-8")
