"""``gpuperf audit``: the syncs of a script, on a machine without a GPU."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ..devices.pretend.record import StepAudit
from ..errors import UsageError
from ..model.codec import decode
from ..model.codec import encode
from ..report.audit_json import audit_document
from ..report.audit_table import audit_lines
from .audited import START
from .audited import Audited
from .audited import Request
from .interrupts import interrupts_left_to_child
from .interrupts import shell_code
from .program import Program
from .program import check_script


SUMMARY: Final = "find the syncs of a script, on a pretend GPU"
REST: Final = "SCRIPT [-- arguments...]"

PACKAGES: Final = Path(__file__).absolute().parents[2]
STANDARD_ERROR: Final = 2
FAILED: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program and how to judge it."""
    parser.add_argument(
        "script", nargs="?", metavar="SCRIPT", help="script to run, as python would"
    )
    parser.add_argument(
        "-m", dest="module", metavar="MODULE", help="module to run in its place"
    )
    parser.add_argument(
        "--max-syncs",
        type=_count,
        metavar="N",
        help="exit with 1 where the host waits more than N times (default: no limit)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object; the script's own output goes to standard error",
    )
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="folder of the code whose lines to name (default: the working directory, "
        "or the script's where it lies elsewhere)",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run the program, print what was found, and return the exit code."""
    program = _program(arguments, rest)
    root = _root(arguments.root, program)
    code, audit = _audited(program, root, quiet=arguments.json)
    if audit is None:
        sys.stderr.write(f"gpuperf: {_unfinished(program, code)}\n")
        return code or FAILED
    sys.stdout.write(_text(audit, as_json=arguments.json))
    objection = _objection(audit, arguments.max_syncs)
    if objection is not None:
        sys.stderr.write(f"gpuperf: {objection}\n")
    return code or (FAILED if objection is not None else 0)


def _count(text: str) -> int:
    if not text.isdecimal():
        msg = f"expected a whole number from 0 on, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _program(arguments: argparse.Namespace, rest: Sequence[str]) -> Program:
    """Tell the program and its arguments; raises ``UsageError`` where it cannot be one."""
    own, *passed_on = rest or ["--"]
    if own != "--":
        arguments.parser.error(
            f"unexpected {own}: arguments of the script go after `--`"
        )
    if (arguments.script is None) == (arguments.module is None):
        arguments.parser.error("expected either a script or -m MODULE")
    if arguments.script is not None:
        check_script(arguments.script)
    return Program(
        name=arguments.module or arguments.script,
        is_module=arguments.module is not None,
        arguments=tuple(passed_on),
    )


def _root(named: Path | None, program: Program) -> Path:
    here = Path.cwd()
    if named is not None:
        if not named.is_dir():
            msg = f"--root={named}: there is no such folder; expected that of your code"
            raise UsageError(msg)
        return named.resolve()
    if program.is_module:
        return here
    folder = Path(program.name).absolute().parent.resolve()
    return here if folder.is_relative_to(here) else folder


def _audited(
    program: Program, root: Path, *, quiet: bool
) -> tuple[int, StepAudit | None]:
    """Run *program* in a process of its own: its exit code and what was found."""
    with TemporaryDirectory(prefix="gpuperf-audit-") as folder:
        report = Path(folder, "report.json")
        request = Request(program=program, root=str(root), report=str(report))
        text = json.dumps(encode(request))
        with interrupts_left_to_child():
            returncode = subprocess.run(  # noqa: S603, the user's own script, no shell
                [sys.executable, "-c", START, str(PACKAGES), text],
                stdout=STANDARD_ERROR if quiet else None,
                check=False,
            ).returncode
        code = shell_code(returncode)
        if not report.exists():
            return code, None
        audited = decode(Audited, json.loads(report.read_text(encoding="utf-8")))
    if audited.refusal is not None:
        raise UsageError(audited.refusal)
    return code, audited.audit


def _unfinished(program: Program, code: int) -> str:
    return (
        f"{program.name} ended with exit status {code} in a way that left no findings, "
        "as os._exit and a killed process do; end it as a script ends"
    )


def _text(audit: StepAudit, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(audit_document(audit), indent=2) + "\n"
    return "".join(f"{line}\n" for line in audit_lines(audit, Path.cwd()))


def _objection(audit: StepAudit, most: int | None) -> str | None:
    """Why the script does not pass under ``--max-syncs``, if it does not."""
    if most is None:
        return None
    if not audit.touched_gpu:
        return f"nothing ran on the GPU, so --max-syncs={most} could not be judged"
    syncs = audit.totals.syncs
    return f"{syncs} syncs are more than --max-syncs={most}" if syncs > most else None
