"""A process of its own for the program that a command runs, and what it reports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any
from typing import Final

from ..model.codec import encode
from .interrupts import interrupts_left_to_child
from .interrupts import shell_code
from .program import Program


PACKAGES: Final = Path(__file__).absolute().parents[2]
STANDARD_ERROR: Final = 2


class Output(Enum):
    """Where goes what the program prints; its errors go with it nowhere alone."""

    SHOWN = None
    ERRORS = STANDARD_ERROR
    NOWHERE = DEVNULL


def start_of(module: str) -> str:
    """Code for ``python -c`` that runs ``main`` of *module*, for ``run_program``.

    It comes before the folder of this package and a request in JSON: no module of the
    working directory may get in the way, as none does of ``python script.py``.
    """
    return (
        "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
        f"from {module} import main; del sys.path[0]; main()"
    )


def run_program(
    start: str, request: Callable[..., Any], output: Output
) -> tuple[int, Any]:
    """Run the code *start* on ``request(report=...)``: its exit code and its report.

    The report is ``None`` where none was written.
    """
    with TemporaryDirectory(prefix="gpuperf-program-") as folder:
        report = Path(folder, "report.json")
        text = json.dumps(encode(request(report=str(report))))
        with interrupts_left_to_child():
            returncode = subprocess.run(  # noqa: S603, the user's own script, no shell
                [sys.executable, "-c", start, str(PACKAGES), text],
                stdout=output.value,
                stderr=DEVNULL if output is Output.NOWHERE else None,
                check=False,
            ).returncode
        found = report.read_text(encoding="utf-8") if report.exists() else "null"
    return shell_code(returncode), json.loads(found)


def unfinished(program: Program, code: int) -> str:
    """Say that *program* ended without a report."""
    return (
        f"{program.name} ended with exit status {code} in a way that left no findings, "
        "as os._exit and a killed process do; end it as a script ends"
    )
