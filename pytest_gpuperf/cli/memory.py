"""``gpuperf memory``: the peak memory of a script, on a machine without a GPU."""

from __future__ import annotations

import argparse
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from ..errors import ErrorId, UsageError
from ..judge.budget import fit_of
from ..model.measurement import Fit, Forecast, Saving
from ..report.command import memory_command
from ..report.document import terminal
from ..report.html.page import memory_page
from ..report.json import memory_document
from ..report.screen.audit import AuditView
from ..report.screen.memory import MemoryView, is_large, memory_blocks
from ..sharing.processes import EXIT_INTERRUPTED
from ..visible import printed
from .script import Program, notes_of
from .script_process import (
    REST,
    Asked,
    Output,
    ScriptRequest,
    add_program,
    program_of,
    root_of,
    run_program,
    unfinished,
)
from .shared_options import (
    PAGES,
    add_json_argument,
    add_page_argument,
    count,
    leave_page,
    print_json,
    typed,
)


PROGRAM_FAILED: Final = 1
PROGRAM_STEPS: Final = 4

__all__ = ["REST", "add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program and what is asked of it."""
    add_program(parser)
    parser.add_argument(
        "--gb",
        type=typed("a number of GiB above 0", float, lambda found: 0 < found < inf),
        metavar="GIB",
        help="exit with 1 if it does not fit a GPU of so many GiB (2**30 bytes)",
    )
    parser.add_argument(
        "--steps",
        type=count,
        default=PROGRAM_STEPS,
        metavar="N",
        help="end the script after N steps; from N = 4 on, later if each step leaves "
        f"more memory allocated (default: {PROGRAM_STEPS})",
    )
    parser.add_argument(
        "--no-values",
        action="store_true",
        help="compute sizes only: fast, and for models of any size; values that the script "
        "reads are made up (default: compute values while they fit this machine)",
    )
    parser.add_argument(
        "--no-savings",
        action="store_true",
        help="do not try fixes that would lower the peak: each is one more run",
    )
    parser.add_argument(
        "--batch-option",
        metavar="OPTION",
        help="the script's option for its batch size; half the batch is tried, too",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="list each line that takes memory, and each fix that did not help; try "
        "fixes for a peak below 1 GiB, too",
    )
    add_json_argument(parser, "the script's own")
    add_page_argument(parser)


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run the program, with and without savings; print and return the exit code."""
    program = program_of(arguments, rest)
    request = ScriptRequest(
        program=program,
        root=str(root_of(arguments.root, program)),
        asked=Asked.MEMORY,
        steps=arguments.steps,
        values=not arguments.no_values,
    )
    halved = _halved(program, arguments.batch_option)
    output = Output.ERRORS if arguments.json else Output.SHOWN
    code, forecast, unchecked = _predicted(request, output)
    if forecast is None:
        sys.stderr.write(f"gpuperf: {unfinished(program, code)}\n")
        return code or PROGRAM_FAILED
    if code:
        ended = "was interrupted" if code == EXIT_INTERRUPTED else "failed"
        sys.stderr.write(f"gpuperf: {program.name} {ended}, so its peak is unknown\n")
        return code
    fit = None if arguments.gb is None else fit_of(forecast, arguments.gb)
    worth = not arguments.no_savings and _is_worth_savings(arguments, forecast, fit)
    savings = dict(_pulled(request, halved)) if worth else {}
    _print(arguments, program, forecast, savings, fit)
    for objection in unchecked:
        sys.stderr.write(f"gpuperf: {objection}\n")
    return PROGRAM_FAILED if unchecked or fit in {Fit.TOO_LARGE, Fit.UNKNOWN} else 0


def _is_worth_savings(
    arguments: argparse.Namespace, forecast: Forecast, fit: Fit | None
) -> bool:
    """Whether what lowers the peak is tried: each saving is one more run of the script."""
    asked = arguments.verbose or arguments.json or arguments.batch_option
    too_large = fit not in {None, Fit.FITS}
    # What grows has no saving that is enough.
    return not forecast.growth_bytes and bool(asked or too_large or is_large(forecast))


def _print(
    arguments: argparse.Namespace,
    program: Program,
    forecast: Forecast,
    savings: Mapping[Saving, Forecast | None],
    fit: Fit | None,
) -> None:
    view = MemoryView(
        name=program.name,
        places=AuditView(here=Path.cwd(), line_of=linecache.getline, steps=0),
        command=partial(_command, arguments, program),
        gib=arguments.gb,
        fit=fit,
        verbose=arguments.verbose,
        untried=not (savings or arguments.no_savings or forecast.growth_bytes),
    )
    blocks = memory_blocks(forecast, savings, view)
    if arguments.json:
        print_json(memory_document(forecast, savings, arguments.gb, fit))
    else:
        sys.stdout.write(printed(terminal(blocks)))
    page = partial(memory_page, forecast, savings, view.places, blocks)
    leave_page(PAGES["memory"], arguments.html, page)


def _command(arguments: argparse.Namespace, program: Program, gib: float | None) -> str:
    """Return the command for a GPU of *gib* GiB, or the same one that shows everything."""
    given = arguments.gb if gib is None else gib
    options = [
        *(("-v",) if gib is None else ()),
        *((f"--gb={given:g}",) if given is not None else ()),
        *((f"--steps={arguments.steps}",) if arguments.steps != PROGRAM_STEPS else ()),
        *(("--no-values",) if arguments.no_values else ()),
    ]
    return memory_command(options, program.typed)


def _predicted(
    request: ScriptRequest, output: Output
) -> tuple[int, Forecast | None, tuple[str, ...]]:
    """Run the program in a process of its own: its exit code, its needs, the unchecked."""
    notes = notes_of(request.program)
    code, answer = run_program(request, **output.streams)
    forecast = answer.forecast
    if forecast is not None:
        forecast = replace(forecast, notes=(*forecast.notes, *notes))
    return code, forecast, answer.unchecked


def _pulled(
    request: ScriptRequest, halved: Program | None
) -> Iterator[tuple[Saving, Forecast | None]]:
    """Predict again with each saving; ``None`` if the program fails with it."""
    for saving in Saving:
        program = halved if saving is Saving.HALF_BATCH else request.program
        if program is not None:
            again = replace(request, program=program, saving=saving)
            code, forecast, _ = _predicted(again, Output.NOWHERE)
            if code == EXIT_INTERRUPTED:  # the peak is known, and no more is waited for
                return
            yield saving, None if code else forecast


def _halved(program: Program, option: str | None) -> Program | None:
    """Halve the batch size among the arguments of *program*."""
    if option is None:
        return None
    arguments = list(program.arguments)
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option and equals:
            arguments[index] = f"{name}={_half(option, value)}"
            return replace(program, arguments=tuple(arguments))
        if argument == option and index + 1 < len(arguments):
            arguments[index + 1] = _half(option, arguments[index + 1])
            return replace(program, arguments=tuple(arguments))
    msg = (
        f"--batch-option={option}: found no {option} among the script's arguments; "
        f"expected its batch size after `--`, as in `-- {option} 32`"
    )
    raise UsageError(msg, ErrorId.GP113)


def _half(option: str, text: str) -> str:
    if not text.isdecimal() or int(text) < 2:  # noqa: PLR2004, to be halved
        msg = f"{option} {text}: expected a batch size of 2 or more, to be halved"
        raise UsageError(msg, ErrorId.GP113)
    return str(int(text) // 2)
