"""The process in which a command runs a program on the simulated GPU: it becomes the script's."""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Final

from ..devices.audit_record import StepAudit
from ..devices.pretend import pretend_gpu
from ..errors import ErrorId
from ..errors import UsageError
from ..model.codec import decode
from ..model.codec import encode
from ..model.forecast import Forecast
from ..model.forecast import Saving
from .script import Program
from .script import load
from .script_process import Output
from .script_process import run_program
from .script_process import run_tidily
from .script_process import start_of


if TYPE_CHECKING:
    from ..devices.pretend.gpu import PretendGpu
    from ..devices.pretend.memory_watch import ProgramMemory
    from ..devices.pretend.program_audit import ProgramAudit

START: Final = start_of(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """A program, the folder of the lines to name, and the file to report in.

    Without ``steps`` its waits are found; else its memory is predicted from so many steps
    at most. ``values`` is that of ``pretend_gpu``; ``saving`` is what is done about memory
    in the program's place.
    """

    program: Program
    root: str
    report: str = ""
    steps: int | None = None
    values: bool | None = None
    saving: Saving | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """What the process found, or why it did not start the program.

    ``notes`` say what else must be known to read what was found.
    """

    audit: StepAudit | None = None
    forecast: Forecast | None = None
    notes: tuple[str, ...] = ()
    refusal: str | None = None


def found_in(
    request: ProgramRequest, output: Output
) -> tuple[int, ProgramResult | None]:
    """Run the program in a process of its own: its exit code and what was found.

    Raises ``UsageError`` if the process did not start it.
    """
    code, report = run_program(START, partial(replace, request), output)
    if report is None:
        return code, None
    result = decode(ProgramResult, report)
    if result.refusal is not None:
        raise UsageError(result.refusal, ErrorId.GP110)
    return code, result


Finder = Callable[..., ProgramResult]
"""Returns what was found so far, with the notes that it is given."""


def main() -> None:
    """Watch the program that the command line asks for, until this process ends."""
    request: ProgramRequest = decode(ProgramRequest, json.loads(sys.argv[1]))
    undo = ExitStack()
    pretence = pretend_gpu(request.root, values=request.values, whole_process=True)
    find = _finder(request, undo.enter_context(pretence), undo)
    try:
        loaded = load(request.program)
    except UsageError as error:
        _write(request.report, ProgramResult(refusal=str(error)))
        return
    if request.saving is not None:
        from ..measure.forecast_savings import applied

        undo.enter_context(applied(request.saving))
    # The functions registered by the program and its threads come first.
    atexit.register(_finish, find, undo, request.report, os.getpid())
    # One that is ignored, as a parent can ask for, stays so.
    if request.steps is None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        end = partial(_end, find, request.report, os.getpid())
        signal.signal(signal.SIGTERM, end)
    run_tidily(loaded)


def _finder(request: ProgramRequest, gpu: PretendGpu, undo: ExitStack) -> Finder:
    """Watch from now on what is asked for."""
    # Imported here: the command that starts this process imports this module, too, and
    # needs no torch.
    from ..devices.pretend.memory_watch import watching_program
    from ..devices.pretend.program_audit import ProgramAudit

    # What is there by now stays, and to look through it takes most of a collection.
    gc.freeze()
    if request.steps is not None:
        watching = watching_program(request.root, request.steps)
        return partial(_forecast_of, undo.enter_context(watching))
    program = ProgramAudit(gpu)
    undo.callback(program.close)
    return partial(_audit_of, program)


def _audit_of(program: ProgramAudit, *notes: str) -> ProgramResult:
    from ..devices.pretend.tensor_values import BACKING

    switched = (BACKING.switched,) if BACKING.switched else ()
    also = program.notes()
    return ProgramResult(audit=program.audit(), notes=(*switched, *also, *notes))


def _forecast_of(memory: ProgramMemory) -> ProgramResult:
    from ..measure.forecast_savings import forecast_of_program

    return ProgramResult(forecast=forecast_of_program(memory))


def _finish(find: Finder, undo: ExitStack, report: str, process: int) -> None:
    """Leave what was found in *report*, unless this is a fork of the process."""
    # A fork, such as a DataLoader's worker, inherits the exit handlers.
    if os.getpid() == process:
        found = find()
        try:
            undo.close()
        except LookupError:  # the saving has nothing to be applied to
            found = ProgramResult()
        _write(report, found)


def _end(find: Finder, report: str, process: int, number: int, _: object) -> None:
    """Leave what was found so far, and end by the signal *number* all the same."""
    # Another one would cut off the report: ``timeout`` sends two.
    signal.signal(number, signal.SIG_IGN)
    if os.getpid() == process:
        name = signal.Signals(number).name
        _write(report, find(f"{name} ended it: this is what it did before"))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _write(report: str, result: ProgramResult) -> None:
    Path(report).write_text(json.dumps(encode(result)), encoding="utf-8")
