"""The process that ``gpuperf audit`` starts: it becomes the script's."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable
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
from .program import run


if TYPE_CHECKING:
    from ..devices.pretend.gpu import PretendGpu


START: Final = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    f"from {__name__} import main; del sys.path[0]; main()"
)
"""For ``python -c``, before the folder of this package and a request in JSON: no module
of the working directory may get in the way, as none does of ``python script.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A program to audit, the folder whose lines to name, and the file to report in."""

    program: Program
    root: str
    report: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What the process found, or why it did not start the program."""

    audit: StepAudit | None = None
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
    threading.excepthook = _tidied(threading.excepthook)
    run(loaded, _tidy)


def _finish(gpu: PretendGpu, pretence: ExitStack, report: str, process: int) -> None:
    """Leave the findings in *report*, unless this is a fork of the process."""
    if os.getpid() == process:
        _write(report, Audited(audit=gpu.end_step()))
        pretence.close()


def _write(report: str, audited: Audited) -> None:
    Path(report).write_text(json.dumps(encode(audited)), encoding="utf-8")


def _tidy(error: BaseException) -> None:
    from ..devices.pretend.tracebacks import without_own_frames

    without_own_frames(error)


def _tidied(
    hook: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], None]:
    """Make *hook* show what fails in a thread as what fails in the program is."""

    def tidied(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if error is not None:
            _tidy(error)
            shown = (args.exc_type, error, error.__traceback__, args.thread)
            args = threading.ExceptHookArgs(shown)
        hook(args)

    return tidied
