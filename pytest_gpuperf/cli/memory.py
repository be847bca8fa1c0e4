"""``gpuperf memory``: the peak memory of a script, on a machine without a GPU."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from ..errors import UsageError
from ..judge.fit import fit_of
from ..model.codec import decode
from ..model.forecast import Fit
from ..model.forecast import Forecast
from ..model.forecast import Lever
from ..report.memory_json import memory_document
from ..report.memory_table import memory_lines
from .program import Program
from .program_arguments import REST
from .program_arguments import add_program
from .program_arguments import program_of
from .program_arguments import root_of
from .program_process import Output
from .program_process import run_program
from .program_process import unfinished
from .remembered import START
from .remembered import Remembered
from .remembered import Request


SUMMARY: Final = "predict the peak memory of a script, and what would lower it"

FAILED: Final = 1
STEPS: Final = 4

__all__ = ["REST", "SUMMARY", "add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program and what is asked of it."""
    add_program(parser)
    parser.add_argument(
        "--gb",
        type=_gib,
        metavar="GIB",
        help="exit with 1 where it does not fit a GPU of so many GiB (2**30 bytes)",
    )
    parser.add_argument(
        "--steps",
        type=_steps,
        default=STEPS,
        metavar="N",
        help=f"end the script after N steps of its optimizer (default: {STEPS})",
    )
    parser.add_argument(
        "--no-values",
        action="store_true",
        help="hold sizes only: fast, and for models of any size; what the script reads "
        "from the GPU is a guess (default: values as long as they fit this machine)",
    )
    parser.add_argument(
        "--no-levers",
        action="store_true",
        help="leave out what would lower the peak: each lever is one more run",
    )
    parser.add_argument(
        "--batch-option",
        metavar="OPTION",
        help="the script's option for its batch size: to try half of it as well",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object; the script's own output goes to standard error",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """The script, and how to run it."""

    program: Program
    root: Path
    steps: int
    values: bool | None
    output: Output


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run the program, with and without levers; print and return the exit code."""
    program = program_of(arguments, rest)
    question = _Question(
        program=program,
        root=root_of(arguments.root, program),
        steps=arguments.steps,
        values=False if arguments.no_values else None,
        output=Output.ERRORS if arguments.json else Output.SHOWN,
    )
    halved = _halved(program, arguments.batch_option)
    code, forecast = _predicted(question)
    if forecast is None:
        sys.stderr.write(f"gpuperf: {unfinished(program, code)}\n")
        return code or FAILED
    if code:
        sys.stderr.write(f"gpuperf: {program.name} failed, so no peak is known\n")
        return code
    levers = {} if arguments.no_levers else dict(_pulled(question, halved))
    fit = None if arguments.gb is None else fit_of(forecast, arguments.gb)
    _print(arguments, forecast, levers, fit)
    return FAILED if fit in {Fit.TOO_LARGE, Fit.UNKNOWN} else 0


def _print(
    arguments: argparse.Namespace,
    forecast: Forecast,
    levers: Mapping[Lever, Forecast | None],
    fit: Fit | None,
) -> None:
    if arguments.json:
        document = memory_document(forecast, levers, arguments.gb, fit)
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        lines = memory_lines(forecast, levers, arguments.gb, fit, Path.cwd())
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def _predicted(
    question: _Question, lever: Lever | None = None
) -> tuple[int, Forecast | None]:
    """Run the program in a process of its own: its exit code and what it would need."""
    request = partial(
        Request,
        program=question.program,
        root=str(question.root),
        steps=question.steps,
        values=question.values,
        lever=lever,
    )
    output = Output.NOWHERE if lever else question.output
    code, report = run_program(START, request, output)
    if report is None:
        return code, None
    remembered = decode(Remembered, report)
    if remembered.refusal is not None:
        raise UsageError(remembered.refusal)
    return code, remembered.forecast


def _pulled(
    question: _Question, halved: Program | None
) -> Iterator[tuple[Lever, Forecast | None]]:
    """Predict again with each lever; ``None`` where the program fails with it."""
    for lever in Lever:
        program = halved if lever is Lever.HALF_BATCH else question.program
        if program is not None:
            code, forecast = _predicted(replace(question, program=program), lever)
            yield lever, None if code else forecast


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
    raise UsageError(msg)


def _half(option: str, text: str) -> str:
    if not text.isdecimal() or int(text) < 2:  # noqa: PLR2004, to be halved
        msg = f"{option} {text}: expected a batch size of 2 or more, to be halved"
        raise UsageError(msg)
    return str(int(text) // 2)


def _gib(text: str) -> float:
    try:
        gib = float(text)
    except ValueError:
        gib = inf
    if not 0 < gib < inf:
        msg = f"expected a number of GiB above 0, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return gib


def _steps(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        msg = f"expected a whole number of steps from 1 on, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)
