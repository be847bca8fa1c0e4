"""A process of its own for the program that a command runs, and what it reports."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any
from typing import Final

from ..devices.own_code import checkout_of
from ..errors import ErrorId
from ..errors import UsageError
from ..model.codec import encode
from . import RANK_LAUNCHERS
from .script import Loaded
from .script import Program
from .script import check_script
from .script import interrupts_left_to_child
from .script import launched
from .script import run
from .script import shell_code
from .script import terminations_passed_on


# The program that a command runs, as its command line names it.

REST: Final = "SCRIPT [-- arguments...]"


def add_program(parser: argparse.ArgumentParser) -> None:
    """Declare the program and the folder of the lines that are named."""
    parser.add_argument(
        "script", nargs="?", metavar="SCRIPT", help="script or notebook to run"
    )
    parser.add_argument(
        "-m", dest="module", metavar="MODULE", help="module to run in its place"
    )
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="folder of the code whose lines to name, beside what is installed editable "
        "(default: the checkout around the working directory, or around the script if "
        "that is elsewhere)",
    )


def program_of(arguments: argparse.Namespace, rest: Sequence[str]) -> Program:
    """Return the program and its arguments; raise ``UsageError`` if it is none."""
    own, *passed_on = rest or ["--"]
    if own != "--":
        arguments.parser.error(
            f"unexpected {own}: arguments of the script go after `--`"
        )
    if (arguments.script is None) == (arguments.module is None):
        arguments.parser.error("expected either a script or -m MODULE")
    named = arguments.script or arguments.module
    if named in RANK_LAUNCHERS and not Path(named).exists():
        program = launched(named, passed_on)
        if not program.is_module:
            check_script(program.name)
        return program
    if arguments.script is not None:
        check_script(arguments.script)
    return Program(
        name=arguments.module or arguments.script,
        is_module=arguments.module is not None,
        arguments=tuple(passed_on),
    )


def root_of(named: Path | None, program: Program) -> Path:
    """Return the folder *named*, or the checkout of the code.

    Raises ``UsageError`` if there is no folder of that name.
    """
    here = Path.cwd()
    if named is not None:
        if not named.is_dir():
            msg = f"--root={named}: there is no such folder; expected that of your code"
            raise UsageError(msg, ErrorId.GP112)
        return named.resolve()
    if program.is_module:
        return checkout_of(here)
    folder = Path(program.name).absolute().parent.resolve()
    return checkout_of(here if folder.is_relative_to(here) else folder)


# A program on the simulated GPU; its failures are shown as its own.


def run_tidily(loaded: Loaded) -> None:
    """Run it to its end, and cut our frames out of every traceback that is shown."""
    threading.excepthook = _tidied(threading.excepthook)
    run(loaded, _tidy)


def _tidy(error: BaseException) -> None:
    from ..devices.pretend.errors import without_own_frames

    without_own_frames(error)


def _tidied(
    hook: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], None]:
    """Make *hook* show failures of threads without our frames, too."""

    def tidied(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if error is not None:
            _tidy(error)
            shown = (args.exc_type, error, error.__traceback__, args.thread)
            args = threading.ExceptHookArgs(shown)
        hook(args)

    return tidied


OWN_PACKAGES: Final = Path(__file__).absolute().parents[2]
STANDARD_ERROR: Final = 2


class Output(Enum):
    """Where the program's output goes; only NOWHERE redirects its errors as well."""

    SHOWN = None
    ERRORS = STANDARD_ERROR
    NOWHERE = DEVNULL


def start_of(module: str) -> str:
    """Code for ``python -c`` that runs ``main`` of *module*, for ``run_program``.

    It is followed by the folder of this package and a request in JSON. No module of the
    working directory may get in the way, as with ``python script.py``.
    """
    return (
        "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
        f"from {module} import main; del sys.path[0]; main()"
    )


def run_program(
    start: str, request: Callable[..., Any], output: Output
) -> tuple[int, Any]:
    """Run the code *start* on ``request(report=...)``: its exit code and its report.

    The report is ``None`` if none was written.
    """
    with TemporaryDirectory(prefix="gpuperf-program-") as folder:
        report = Path(folder, "report.json")
        text = json.dumps(encode(request(report=str(report))))
        # Ctrl-C reaches both processes: the child ends as its own code decides, and its
        # exit code is passed on.
        with interrupts_left_to_child():
            child = subprocess.Popen(  # noqa: S603, the user's own script, no shell
                [sys.executable, "-c", start, str(OWN_PACKAGES), text],
                stdout=output.value,
                stderr=DEVNULL if output is Output.NOWHERE else None,
            )
            with terminations_passed_on(child):
                returncode = child.wait()
        # A file, not standard output: that belongs to the program.
        found = report.read_text(encoding="utf-8") if report.exists() else "null"
    return shell_code(returncode), json.loads(found)


def unfinished(program: Program, code: int) -> str:
    """Say that *program* ended without a report."""
    return (
        f"{program.name} ended with exit status {code} in a way that left no findings, "
        "as os._exit and a killed process do; end it as a script ends"
    )
