"""The process that ``gpuperf memory`` starts: it becomes the script's."""

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
from ..errors import UsageError
from ..model.codec import decode
from ..model.codec import encode
from ..model.forecast import Forecast
from ..model.forecast import Lever
from .program import Program
from .program import load
from .program_process import start_of
from .tidy import run_tidily


if TYPE_CHECKING:
    from ..devices.pretend.program_memory import ProgramMemory


START: Final = start_of(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A program, the folder whose lines to name, and the file to report in.

    ``steps`` are as many as are run at most; ``values`` is that of ``pretend_gpu``;
    ``lever`` is what is done about memory in the program's place.
    """

    program: Program
    root: str
    report: str
    steps: int
    values: bool | None = None
    lever: Lever | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the process found, or why it did not start the program."""

    forecast: Forecast | None = None
    refusal: str | None = None


def main() -> None:
    """Predict the memory of what the command line asks for, until this process ends."""
    request: Request = decode(Request, json.loads(sys.argv[1]))
    undo = ExitStack()
    undo.enter_context(pretend_gpu(request.root, values=request.values))
    from ..devices.pretend.program_memory import watching_program

    memory = undo.enter_context(watching_program(request.root, request.steps))
    try:
        loaded = load(request.program)
        _pull(request, memory, undo)
    except UsageError as error:
        _write(request.report, Remembered(refusal=str(error)))
        return
    # The functions registered by the program and its threads come first.
    atexit.register(_finish, memory, undo, request.report, os.getpid())
    run_tidily(loaded)


def _pull(request: Request, memory: ProgramMemory, undo: ExitStack) -> None:
    """Pull the lever that is asked for, or do so when what it needs is there."""
    if request.lever is None:
        return
    from ..probes.levers import pulled

    lever = request.lever
    if lever is Lever.CHECKPOINT:
        memory.after_first(lambda: undo.enter_context(pulled(lever)))
    else:
        undo.enter_context(pulled(lever))


def _finish(memory: ProgramMemory, undo: ExitStack, report: str, process: int) -> None:
    """Leave the forecast in *report*, unless this is a fork of the process."""
    if os.getpid() == process:
        from ..probes.forecast import forecast_of_program

        _write(report, Remembered(forecast=forecast_of_program(memory)))
        undo.close()


def _write(report: str, remembered: Remembered) -> None:
    Path(report).write_text(json.dumps(encode(remembered)), encoding="utf-8")
