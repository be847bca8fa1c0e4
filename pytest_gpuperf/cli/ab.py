"""``gpuperf ab``: one version of the project, or of a program, against another."""

from __future__ import annotations

import argparse
import linecache
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from ..baselines.store import write
from ..compare_commits.culprits import TRAINING, Culprits, worse_of
from ..compare_commits.pairs import FEW, compare_versions
from ..compare_commits.side_server import Selection
from ..compare_commits.sides import (
    Side,
    checked_out,
    other_folder,
    patched,
    present,
    versions,
)
from ..devices.audit_record import StepAudit
from ..environments import PackageChange, Packages, changed, installed, pins_of
from ..errors import ErrorId, UsageError
from ..files import scratch_folder
from ..judge.process_pairs import MOST_PAIRS, Pair, judge_call
from ..judge.training import judge_training
from ..model.ab import AbRun, Comparison, Training, TrainingAnswer, TrainingRecord
from ..model.budget import Tolerance
from ..model.environment import SIMULATED_GPU, Environment
from ..model.finding import Finding
from ..model.measurement import Forecast, Measurement
from ..model.metrics import (
    D2H_BYTES,
    H2D_BYTES,
    PAGEABLE_COPIES,
    PEAK_ALLOCATED,
    STEP_MS,
    SYNCS,
    counted,
)
from ..report.document import terminal
from ..report.html.page import ab_page
from ..report.json import ab_document
from ..report.screen.audit import AuditView
from ..report.screen.commits import comparison_blocks, markdown_lines
from ..runner.fork_server import HASH_SEED
from ..runner.git import Repository
from ..runner.relocation import moved_path
from ..sharing.processes import EXIT_INTERRUPTED, SIGNALLED
from ..visible import printed
from ..worker.items import below
from .memory import PROGRAM_STEPS
from .script import Program, check_script
from .script_process import Asked, ScriptAnswer, ScriptRequest, run_program, unfinished
from .shared_options import (
    PAGES,
    add_device_argument,
    add_json_argument,
    add_page_argument,
    announce,
    leave_page,
    passed_on,
    print_json,
    pytest_arguments,
)


REST: Final = "[REF [REF2]] [-- pytest arguments... | -- train.py arguments...]"

STDIN: Final = "-"

CHANGE_OPTIONS: Final = "--with, --without, --lock and --patch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two versions, the device and the form of the table."""
    parser.epilog = (
        "exit status: 0 nothing is worse, 1 something is worse or broken, 2 something "
        "trains differently, 125 cannot tell; git bisect run skips 125, 1 and 2 are bad"
    )
    parser.add_argument(
        "before",
        nargs="?",
        metavar="REF",
        help="commit or folder to compare with (default: the commit at which HEAD left main)",
    )
    parser.add_argument(
        "after",
        nargs="?",
        metavar="REF2",
        help="commit to judge (default: the working tree, uncommitted changes included)",
    )
    _add_changes(parser)
    add_device_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--markdown",
        action="store_true",
        help="print the table for a pull request",
    )
    add_json_argument(form)
    parser.add_argument(
        "--markdown-file",
        type=Path,
        metavar="FILE",
        help="also write the table for a pull request to FILE",
    )
    add_page_argument(parser)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    """Declare what, in place of two commits, differs from what is here now."""
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="requirements",
        metavar="PACKAGE==VERSION",
        help="judge the project with this package, a wheel or a folder (repeatable)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="judge the project without this package (repeatable)",
    )
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="compare with the packages that this requirements file or uv.lock pins",
    )
    parser.add_argument(
        "--which",
        action="store_true",
        help="with --lock: name the package, or the few together, that made it worse "
        "or changed the training",
    )
    parser.add_argument(
        "--patch",
        metavar="FILE",
        help="judge the project with this patch, - for standard input",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Compare, print the table, and return its status."""
    program = program_named(passed_on(arguments, rest))
    given = () if program else pytest_arguments(arguments, rest)
    selection = Selection(arguments=tuple(given), asks_training=True)

    def compare(both: tuple[Side, Side], some: Selection = selection) -> AbRun:
        if program:
            return compare_program(both, program, announce)
        return compare_versions(both, some, announce)

    try:
        with _sides(arguments) as both:
            found, code = compare(both), 0
            if arguments.which and worse_of(found):
                again = partial(compare, some=_only_worse(found, selection))
                found, code = _with_culprits(found, both, arguments.lock, again)
            elif _is_lock_alone(arguments) and worse_of(found):
                found = _with_hint(found, arguments.lock)
    except KeyboardInterrupt:
        announce("interrupted: nothing was judged, no file is left")
        return EXIT_INTERRUPTED
    blocks = comparison_blocks(found)
    if arguments.json:
        print_json(ab_document(found))
    else:
        is_md = arguments.markdown
        sys.stdout.write(printed(markdown_lines(found) if is_md else terminal(blocks)))
    if arguments.markdown_file:
        write(arguments.markdown_file, printed(markdown_lines(found)))
    view = AuditView(here=Path.cwd(), line_of=linecache.getline, steps=0)
    leave_page(PAGES["ab"], arguments.html, partial(ab_page, found, view, blocks))
    return code or found.status


def _is_lock_alone(arguments: argparse.Namespace) -> bool:
    changes = (arguments.requirements, arguments.without, arguments.patch)
    return arguments.lock is not None and not any(changes)


@contextmanager
def _sides(arguments: argparse.Namespace) -> Iterator[tuple[Side, Side]]:
    """Yield the side that is compared with, and the one that is judged."""
    change = PackageChange(
        requirements=tuple(arguments.requirements), without=tuple(arguments.without)
    )
    if arguments.which and not _is_lock_alone(arguments):
        msg = "--which: expected --lock=FILE and no other change"
        raise UsageError(msg, ErrorId.GP102)
    if change == PackageChange() and not (arguments.lock or arguments.patch):
        yield _named(arguments.before, arguments.after)
        return
    if arguments.before:
        msg = f"{arguments.before}: {CHANGE_OPTIONS} change what is here now: expected no REF"
        raise UsageError(msg, ErrorId.GP102)
    before, after = _of_files(arguments.patch)
    with scratch_folder() as place:
        packages = Packages(place, announce)
        after = after.with_packages(packages.overlay(change))
        if arguments.lock:
            old = PackageChange.to_lock(arguments.lock)
            before = before.with_packages(packages.overlay(old))
        if before == after:
            msg = "what is named is what is installed: there is nothing to compare"
            raise UsageError(msg, ErrorId.GP703)
        yield before, after


def _named(before: str | None, after: str | None) -> tuple[Side, Side]:
    """Return the commits that are meant, or a folder and what is here."""
    if before and not after and Path(before).is_dir():
        here = present()
        return other_folder(Path(before), here.relocation.origin), here
    return versions(Repository.containing(Path.cwd()), before, after)


def _of_files(patch: str | None) -> tuple[Side, Side]:
    """Return the project as it is now, and with a *patch* if there is one."""
    if patch is None:
        here = present()
        return here, here
    if patch != STDIN and not Path(patch).is_file():
        msg = (
            f"--patch={patch}: there is no such file; expected a patch, or - for stdin"
        )
        raise UsageError(msg, ErrorId.GP720)
    repository = Repository.containing(Path.cwd())
    if patch != STDIN:
        return patched(repository, Path(patch), patch)
    with scratch_folder() as scratch:
        file = Path(scratch, "patch")
        file.write_bytes(sys.stdin.buffer.read())
        return patched(repository, file, "the patch")


def _with_hint(found: AbRun, lock: Path) -> AbRun:
    """Return *found*, and how to learn more if several packages may have done it."""
    before, _ = changed(pins_of(lock), installed())
    if len(before) == 1:
        return found
    hint = f"{len(before)} packages differ: --which names the one that did it"
    return replace(found, notes=(*found.notes, hint))


def _with_culprits(
    found: AbRun,
    both: tuple[Side, Side],
    lock: Path,
    compare: Callable[[tuple[Side, Side]], AbRun],
) -> tuple[AbRun, int]:
    """Return *found* with a note on each culprit; and 130 after Ctrl-C, else 0."""
    old, new = both
    pins = changed(pins_of(lock), installed())
    with scratch_folder() as place:
        packages = Packages(place, announce)

        def compare_part(requirements: tuple[str, ...]) -> AbRun:
            change = PackageChange(requirements=requirements, part=True)
            return compare((old, new.with_packages(packages.overlay(change))))

        culprits = Culprits(found, pins, compare_part, announce)
        code, more = 0, list[str]()
        try:
            culprits.search()
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            more = [culprits.left()]
    return replace(found, notes=(*found.notes, *culprits.lines(), *more)), code


def _only_worse(found: AbRun, selection: Selection) -> Selection:
    """Return what is compared again: of *selection* the tests that got worse or differ.

    What is exact alone, if no time got worse: it takes few pairs.
    """
    worse = worse_of(found)
    metrics = {metric for _, metric in worse}
    return replace(
        selection,
        calls=tuple(dict.fromkeys(call for call, _ in worse)),
        exact_alone=STEP_MS.name not in metrics,
        asks_training=TRAINING in metrics,
    )


# `gpuperf ab ... -- train.py`: one program on both sides, on the simulated GPU.
#
# Nothing is timed there. Syncs, copies and bytes of all its steps are counted, and the
# peak of the first ones is predicted, as `gpuperf audit` and `gpuperf memory` do.


SIMULATED: Final = Environment(hardware=SIMULATED_GPU)

PROGRAM_ENGINE: Final = (
    "the program, run on each side on the simulated GPU, which has no clock; counts and "
    "bytes are those of all its steps"
)

COUNTED: Final = (PAGEABLE_COPIES.name, H2D_BYTES.name, D2H_BYTES.name)
"""Sums of a program that are compared, and its syncs."""


def program_named(typed: Sequence[str]) -> Program | None:
    """Return the script that is *typed*, unless it is tests or an option of pytest.

    Raises ``UsageError`` if it cannot be read.
    """
    first = Path(typed[0]) if typed else Path()
    is_test = first.name.startswith("test_") or first.stem.endswith("_test")
    if first.suffix != ".py" or is_test:
        return None
    check_script(typed[0])
    return Program(name=typed[0], is_module=False, arguments=tuple(typed[1:]))


def compare_program(
    sides: tuple[Side, Side], program: Program, announce: Callable[[str], None]
) -> AbRun:
    """Run *program* on both *sides*, again while they differ, and say what moved.

    Raises ``UsageError`` if it fails, or does nothing on the GPU, on a side.
    """
    pairs: list[Pair] = []
    found = Comparison(settled=False)
    peaks: list[Forecast | None] = []
    with checked_out(sides) as (before, after, _):
        while not found.settled:
            announce(f"run {len(pairs) + 1} of at most {MOST_PAIRS}: {program.name}")
            if not _are_equal(peaks):  # or another run would say it again
                peaks = [_predicted(side, program) for side in (before, after)]
            first, second = map(partial(_measured, program), (before, after), peaks)
            pairs.append((first, second))
            last = len(pairs) == MOST_PAIRS
            found = judge_call(pairs, Tolerance(), last=last)
        announce(f"compared in {counted(len(pairs), 'run')} of each side")
        announce(f"training: {program.name}")
        training = _trained((before, after), program)
    return AbRun(
        before=before.label,
        after=after.label,
        device=SIMULATED.hardware.key,
        engine=PROGRAM_ENGINE,
        calls=(replace(found, training=training),),
        notes=(*before.notes, *after.notes),
    )


def _trained(sides: tuple[Side, Side], program: Program) -> Training:
    """Say whether *program* trains the same on both *sides*, after a look or two."""
    runs: list[list[TrainingRecord]] = []
    for number in range(FEW):
        try:
            found = [_answer(s, program, Asked.TRAINING, number) for s in sides]
        except UsageError as error:
            return Training(answer=TrainingAnswer.NOT_COMPARED, text=error.text)
        runs.append([each.training for each in found if each.training])
        judged = judge_training(*zip(*runs, strict=True))
        if judged.answer is not TrainingAnswer.DIFFERS:
            break
    return judged


def _predicted(side: Side, program: Program) -> Forecast | None:
    forecast = _answer(side, program, Asked.MEMORY).forecast
    return None if forecast is None or forecast.not_checked else forecast


def _are_equal(peaks: Sequence[Forecast | None]) -> bool:
    return len({peak and peak.allocated_bytes for peak in peaks}) == 1


def _measured(program: Program, side: Side, forecast: Forecast | None) -> Measurement:
    audit = _answer(side, program, Asked.AUDIT).audit
    if audit is None or not audit.touched_gpu:
        msg = (
            f"{side.label}: {program.name} did nothing on the GPU: nothing was compared"
        )
        raise UsageError(msg, ErrorId.GP709)
    counts = {name: audit.totals.counts[name] for name in COUNTED}
    exact = {SYNCS.name: audit.totals.syncs, **counts}
    findings = [*_of_all_steps(audit)]
    if forecast is not None:
        exact[PEAK_ALLOCATED.name] = forecast.allocated_bytes
        findings += forecast.findings
    measurement = Measurement(
        test=program.name,
        environment=SIMULATED,
        exact=exact,
        unmeasured={STEP_MS.name: "the simulated GPU has no clock"},
        findings=tuple(findings),
        operations=audit.operations,
    )
    return below(Path(side.relocation.root), measurement)


def _of_all_steps(audit: StepAudit) -> Iterator[Finding]:
    """Yield syncs and copies, counted like the sums: a part of a step is no number."""
    steps = audit.steps if audit.steps > 1 else 0
    for found in (*audit.findings, *audit.copies):
        yield replace(found, in_steps=found.in_steps or steps, of_steps=steps)


def _answer(
    side: Side, program: Program, asked: Asked, number: int = 0
) -> ScriptAnswer:
    """Run *program* on *side*, for the time of this *number*; raise ``UsageError`` with its last line if it fails."""
    to = side.relocation.replaced
    arguments = tuple(map(to, program.arguments))
    request = ScriptRequest(
        program=replace(program, name=to(program.name), arguments=arguments),
        root=side.relocation.root,
        asked=asked,
        steps=PROGRAM_STEPS,
        relocation=side.relocation,
        packages=side.packages,
    )
    path = moved_path(os.environ, side.relocation, side.packages.path)
    with TemporaryFile() as output:
        streams = {"stdout": output, "stderr": output}
        # Strings of a set come in the same order on both sides, unless the user says so.
        environment = {HASH_SEED: f"{number}", **os.environ, **path}
        process = {"cwd": side.directory(), "env": environment}
        try:
            code, answer = run_program(request, **streams, **process)
        except UsageError as error:
            msg = f"{side.label}: {error.text}"
            raise UsageError(msg, error.error_id) from None
        _refuse_failure(code, f"{side.label}: {program.name}", output)
    if answer == ScriptAnswer():
        msg = f"{side.label}: {unfinished(program, code)}"
        raise UsageError(msg, ErrorId.GP709)
    return answer


def _refuse_failure(code: int, program: str, output: IO[bytes]) -> None:
    """Raise what ends this command too, or ``UsageError`` with the last line."""
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if (
        code == SIGNALLED + signal.SIGTERM
    ):  # it was passed on, and has ended nothing here
        raise SystemExit(code)
    if code:
        output.seek(0)
        lines = output.read().decode(errors="replace").split("\n")
        said = next((line for line in reversed(lines) if line.strip()), "")
        msg = f"{program} ended with exit status {code}: {said}"
        raise UsageError(msg, ErrorId.GP709)
