"""``gpuperf audit``: the syncs of a script, on a machine without a GPU."""

from __future__ import annotations

import argparse
import linecache
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Final

from ..devices.audit_record import StepAudit
from ..model.metrics import counted
from ..report.command import audit_command
from ..report.document import terminal
from ..report.html.page import audit_page
from ..report.json import audit_document
from ..report.screen.audit import AuditView, audit_blocks
from ..sharing.processes import EXIT_INTERRUPTED, SIGNALLED
from ..visible import printed
from .script import Program, notes_of
from .script_process import (
    Asked,
    Output,
    ScriptAnswer,
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
    leave_page,
    print_json,
    typed,
    whole,
)


REST: Final = "SCRIPT... [-- arguments...]"

AUDIT_FAILED: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program and how to judge it."""
    add_program(parser)
    parser.add_argument(
        "--max-syncs",
        type=typed("a whole number from 0 on", whole),
        metavar="N",
        help="exit with 1 if the CPU waits more than N times (default: no limit)",
    )
    parser.add_argument(
        "--max-syncs-per-step",
        type=typed("a number from 0 on", float, lambda found: 0 <= found < inf),
        metavar="N",
        help="exit with 1 if most steps wait more than N times; a sync of only some "
        "steps, as for a checkpoint, is not counted",
    )
    add_json_argument(parser, "the script's own")
    add_page_argument(parser)
    _add_fix_arguments(parser)


def _add_fix_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of edits."""
    group = parser.add_argument_group("edits, each proven by runs of the script")
    for option, does in (
        ("--diff", "print the edits that help and train the same, as a diff"),
        ("--fix", "write them, too"),
        ("--unsafe", "also take edits that are not compared, or change the output"),
        ("--allow-dirty", "let --fix write files that are not committed as they are"),
    ):
        group.add_argument(option, action="store_true", help=does)
    group.add_argument(
        "-v", "--verbose", action="store_true", help="say why other edits are not shown"
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run each program, print what was found, and return the worst exit code."""
    of_edits = [o for o in ("unsafe", "allow_dirty", "verbose") if vars(arguments)[o]]
    if of_edits and not (arguments.diff or arguments.fix):
        option = of_edits[0].replace("_", "-")
        arguments.parser.error(f"--{option} is about edits: add --diff or --fix")
    more = [*takewhile(lambda word: not word.startswith("-"), rest)]
    programs = [
        program_of(argparse.Namespace(**{**vars(arguments), "script": script}), passed)
        for passed in [rest[len(more) :]]
        for script in dict.fromkeys((arguments.script, *more))
    ]
    if more and (arguments.json or arguments.html):
        found = f"found {len(programs)} scripts; expected one"
        option = "--json" if arguments.json else "--html"
        arguments.parser.error(f"{option} describes one script, {found}")
    worst = 0
    for program in programs:
        if more:
            sys.stdout.write(f"== {program.name}\n")
            sys.stdout.flush()
        worst = max(worst, _run(arguments, program))
        if worst >= SIGNALLED:  # Ctrl-C is meant for all of them
            break
    return worst


def _run(arguments: argparse.Namespace, program: Program) -> int:
    """Run *program*, print what was found, and return its exit code."""
    root = root_of(arguments.root, program)
    if arguments.diff or arguments.fix:
        return _fixed(arguments, program, root)
    output = Output.ERRORS if arguments.json else Output.SHOWN
    code, audited = _audited(program, root, output)
    audit = audited.audit
    if audit is None:
        sys.stderr.write(f"gpuperf: {unfinished(program, code)}\n")
        return code or AUDIT_FAILED
    limits = (arguments.max_syncs, arguments.max_syncs_per_step)
    # A number of a part is no limit for all, nor is one above the limit that was given.
    offers_limit = code == 0 and limits == (None, None) and not audited.unchecked
    command = ""
    if offers_limit:
        command = audit_command(_limit(audit), program.typed)
    view = AuditView(here=Path.cwd(), line_of=linecache.getline, steps=audit.steps)
    blocks = audit_blocks(audit, audited.notes, view, command)
    if arguments.json:
        print_json(audit_document(audit, audited.notes))
    else:
        sys.stdout.write(printed(terminal(blocks)))
    page = partial(audit_page, program.name, audit, view, blocks)
    leave_page(PAGES["audit"], arguments.html, page)
    return _judged(code, audit, audited.unchecked, arguments)


def _judged(
    code: int, audit: StepAudit, unchecked: Sequence[str], arguments: argparse.Namespace
) -> int:
    """Say why it does not pass; return the program's own exit *code*, or that of a failure."""
    objections = [*_objections(audit, arguments), *unchecked]
    for objection in objections:
        sys.stderr.write(f"gpuperf: {objection}\n")
    return code or (AUDIT_FAILED if objections else 0)


def _fixed(arguments: argparse.Namespace, program: Program, root: Path) -> int:
    """Show edits of *program*, and return the exit code that an audit has after them."""
    from .audit_fixes import show_fixes

    if arguments.html:
        arguments.parser.error("--html shows findings, --diff and --fix their edits")
    found = show_fixes(arguments, program, root)
    if found.audit is None:
        return found.code or AUDIT_FAILED
    return _judged(found.code, found.audit, found.unchecked, arguments)


def _audited(program: Program, root: Path, output: Output) -> tuple[int, ScriptAnswer]:
    """Run *program* in a process of its own: its exit code and what was found."""
    notes = notes_of(program)
    request = ScriptRequest(program=program, root=str(root), asked=Asked.AUDIT)
    code, audited = run_program(request, **output.streams)
    steps = audited.audit.steps if audited.audit else 0
    notes = (*audited.notes, *_failed(code, steps), *notes)
    return code, replace(audited, notes=notes)


def _failed(code: int, steps: int) -> Iterator[str]:
    """Say that the script has not done all it does; of other signals that is said already."""
    if code == EXIT_INTERRUPTED:
        yield f"interrupted after {counted(steps, 'step')}: a partial result"
    elif 0 < code < SIGNALLED:
        yield f"the script failed (exit status {code}): this is what it did before"


def _limit(audit: StepAudit) -> str:
    """Return the option that the program passes, and no longer if it waits more."""
    if audit.steps <= 1:
        return f"--max-syncs={audit.totals.syncs}"
    return f"--max-syncs-per-step={audit.per_step}"


def _objections(audit: StepAudit, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield why the script does not pass a limit that was asked for."""
    most, rate = arguments.max_syncs, arguments.max_syncs_per_step
    asked = {
        **({} if most is None else {f"--max-syncs={most}": most}),
        **({} if rate is None else {f"--max-syncs-per-step={rate:g}": rate}),
    }
    if not audit.touched_gpu:
        for option in asked:
            yield f"nothing ran on the GPU, so {option} could not be judged"
        return
    syncs = audit.totals.syncs
    if most is not None and syncs > most:
        yield f"{counted(syncs, 'sync')}: more than --max-syncs={most}"
    if rate is not None:
        yield from _objection_to_rate(audit, rate)


def _objection_to_rate(audit: StepAudit, most: float) -> Iterator[str]:
    option = f"--max-syncs-per-step={most:g}"
    if audit.steps <= 1:
        yield (
            f"{option} needs 2 steps or more to tell what repeats, and found "
            f"{audit.steps}: let the script run longer"
        )
    elif audit.per_step > most:
        yield f"{counted(audit.per_step, 'sync')} per step: more than {option}"
