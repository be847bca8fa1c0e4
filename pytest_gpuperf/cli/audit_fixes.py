"""``gpuperf audit --diff`` and ``--fix``: edits that are tried before they are shown."""

from __future__ import annotations

import argparse
import json
import linecache
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from threading import Event
from typing import IO, Any, Final, cast

from ..baselines.store import replace_file
from ..devices.audit_record import StepAudit
from ..devices.own_code import is_installed
from ..errors import ErrorId, UsageError
from ..files import read_regular, scratch_folder
from ..fixes.counts import Ran, repeats
from ..fixes.edits import ByHand, Edit
from ..fixes.shown import diff_lines, fixes_document, proof_lines, relative
from ..fixes.sources import encoded, text_of
from ..fixes.trial import STANDARD_OUTPUT, Proven, Trial, proven
from ..model.ab import TrainingRecord
from ..model.codec import decode, encode
from ..model.finding import Finding, file_of
from ..model.metrics import MIB, PAGEABLE_COPIES
from ..report.json import audit_document
from ..report.screen.audit import AuditView
from ..runner.fork_server import HASH_SEED
from ..runner.git import run_git
from ..runner.relocation import is_below
from ..sharing.processes import (
    EXIT_INTERRUPTED,
    PASSIVE,
    Reply,
    interrupts_left_to_child,
    read_json,
    shell_code,
    spawned,
)
from ..visible import printed
from .script import Program, notes_of
from .script_process import (
    Asked,
    ScriptAnswer,
    ScriptRequest,
    be_program,
    elapsed_shown,
    standard_error,
    unfinished,
)
from .shared_options import announce, print_json


NEEDS_LIBCST: Final = (
    "--diff and --fix edit the syntax tree with libcst, which is not installed: "
    "`pip install 'pytest-gpuperf[fix]'`"
)


def show_fixes(arguments: argparse.Namespace, program: Program, root: Path) -> Ran:
    """Try edits of *program*, print what helped, and write it with ``--fix``.

    Returns what came of the program with them, or without if it fails. Raises ``UsageError``
    without libcst, and if a file may not be written.
    """
    if find_spec("libcst") is None:
        raise UsageError(NEEDS_LIBCST, ErrorId.GP119)
    with (
        scratch_folder() as folder,
        # Strings of a set come in the same order in all runs.
        running_programs(env={HASH_SEED: "0", **os.environ, **_quiet()}) as run,
    ):
        announce(f"runs {program.name} as it is")
        ran = partial(_ran, run, program, root, Path(folder, "output"))
        try:
            return _tried(arguments, program, root, Trial(ran))
        except KeyboardInterrupt:
            announce("interrupted: no edit was tried")
            return INTERRUPTED


def _tried(
    arguments: argparse.Namespace, program: Program, root: Path, trial: Trial
) -> Ran:
    before = trial.before
    if before.audit is None or before.code:
        failed = f"the script failed (exit status {before.code})"
        why = failed if before.code else unfinished(program, before.code)
        announce(f"{why}: no edit was tried")
        return before
    candidates = Candidates(before.audit, root)
    edits = [*candidates.by_finding(unsafe=arguments.unsafe)]
    if arguments.fix:
        files = {each.file for several in edits for each in several}
        _refuse(files, allow_dirty=arguments.allow_dirty)
    found = proven(trial, edits, announce, unsafe=arguments.unsafe)
    written = [*_written(found)] if arguments.fix and not found.interrupted else []
    _show(arguments, found, before, candidates, written)
    return INTERRUPTED if found.interrupted else found.after


def _quiet() -> Mapping[str, str]:
    """Return variables without which an edit shows in more than what it is about.

    Warnings name a line, which an edit moves. Pytest reads test files itself to show what an
    assertion compared, and stores what came of a run.
    """
    options = (
        f"{os.environ.get('PYTEST_ADDOPTS', '')} --assert=plain -p no:cacheprovider"
    )
    return {"PYTHONWARNINGS": "ignore", "PYTEST_ADDOPTS": options.strip()}


INTERRUPTED: Final = Ran(
    code=EXIT_INTERRUPTED, outputs={}, audit=None, training=TrainingRecord()
)


def _ran(
    run: RunProgram,
    program: Program,
    root: Path,
    output: Path,
    edited: Mapping[str, str],
) -> Ran:
    """Run *program* with *edited* texts; raises ``KeyboardInterrupt`` if that ended it."""
    request = ScriptRequest(
        program=program,
        root=str(root),
        asked=Asked.TRIAL,
        edited={os.path.realpath(file): text for file, text in edited.items()},
    )
    code, found = run(request, output)
    errors = _text(Path(f"{output}{OF_ERRORS}"))
    if code and not edited:
        sys.stderr.write(errors)
    here = str(Path.cwd())
    files = [file for file in found.written if is_below(file, here)]
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return Ran(
        code=code,
        outputs={
            STANDARD_OUTPUT: _text(output),
            "standard error": errors,
            **{os.path.relpath(file): _text(Path(file)) for file in files},
        },
        audit=found.audit,
        training=found.training or TrainingRecord(missing="the program left no record"),
        peak_bytes=found.peak_bytes,
        gpu_draws=found.gpu_draws,
        results=found.results,
        notes=(*found.notes, *notes_of(program)),
        unchecked=found.unchecked,
    )


def _text(file: Path) -> str:
    """Return the beginning of what it has; a file that is gone was of no use."""
    with suppress(OSError):
        return read_regular(file, MOST_BYTES).decode(errors="replace")
    return ""


MOST_BYTES: Final = 10 * MIB


class Candidates:
    """The edits of what an *audit* found in the files of a project; ``by_hand`` the rest."""

    def __init__(self, audit: StepAudit, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._view = AuditView(
            here=Path.cwd(), line_of=linecache.getline, steps=audit.steps
        )
        self._found = [*map(self._view.shown, _repairable(audit))]
        self.by_hand: list[ByHand] = []
        self.untried = 0

    def by_finding(self, *, unsafe: bool) -> Iterator[list[Edit]]:
        """Yield the edits of each finding, the best first, and no edit twice."""
        seen: set[tuple[Path, str]] = set()
        for found in self._found:
            edits = []
            for edit in self._edits_of(found):
                if isinstance(edit, ByHand):
                    self.by_hand.append(edit)
                elif edit.says and not unsafe:
                    self.untried += 1
                elif (edit.file, edit.after) not in seen and self._may_edit(edit.file):
                    seen.add((edit.file, edit.after))
                    edits.append(edit)
            if edits:
                yield edits

    def _edits_of(self, found: Finding) -> Iterable[Edit | ByHand]:
        from ..fixes.rewrites import edits_of

        file = Path(file_of(found))
        # A file that cannot be read, such as that of generated code, has no edits.
        with suppress(OSError, SyntaxError, UnicodeDecodeError):
            return [*edits_of(found, text_of(file), file)]
        return ()

    def _may_edit(self, file: Path) -> bool:
        real = os.path.realpath(file)
        return is_below(real, self._root) and not is_installed(real)


def _repairable(audit: StepAudit) -> Iterator[Finding]:
    """Yield what costs something again and again, and has a line."""
    copies = (
        copy
        for copy in audit.copies
        if PAGEABLE_COPIES.name in copy.metrics and copy.per_step >= audit.steps
    )
    waits = [found for found in audit.findings if repeats(found, audit.steps)]
    waiting = {found.location for found in waits}
    left = (*audit.growth.held, *(audit.garbage.held if audit.garbage else ()))
    for found in (*waits, *(c for c in copies if c.location not in waiting), *left):
        if found.location and found.location.exact:
            yield found


# Programs, one after the other.


RunProgram = Callable[[ScriptRequest, Path], tuple[int, ScriptAnswer]]
"""Runs a program whose output goes to a file: its exit code and what was found."""


@contextmanager
def running_programs(**streams: Any) -> Iterator[RunProgram]:
    """Yield what runs one program after the other, in forks of a process that has torch.

    To import it takes as long as many a program. *streams* are those of ``Popen``.
    """
    pipes = {"stdin": PIPE, "stdout": PIPE}
    variables = {**PASSIVE, **(streams.pop("env", None) or os.environ)}
    entry = "pytest_gpuperf.cli.audit_fixes:be_programs"
    with spawned(entry, None, env=variables, **pipes, **streams) as (process, answer):
        orders, codes = cast("IO[bytes]", process.stdin), process.stdout or ()

        def run(request: ScriptRequest, output: Path) -> tuple[int, ScriptAnswer]:
            answer.unlink(missing_ok=True)
            request = replace(request, whereabouts=str(answer.with_name("whereabouts")))
            Path(request.whereabouts).unlink(missing_ok=True)
            numbers = request.shared_whereabouts()
            line = standard_error(lambda: request.doing(*numbers[:2]))
            order = json.dumps({"request": encode(request), "output": str(output)})
            with interrupts_left_to_child() as seen, elapsed_shown(line, Event()):
                orders.write(f"{order}\n".encode())
                orders.flush()
                code = int(next(iter(codes), EXIT_INTERRUPTED))
            # It may have come before the program could be ended by it.
            code = EXIT_INTERRUPTED if seen else code
            return code, decode(ScriptAnswer, read_json(answer) or {})

        yield run


def be_programs(_: object, reply: Reply) -> None:
    """Run the programs that standard input names, each in a fork of this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from ..compare_steps import training_record  # noqa: F401, what all of them need
    from ..devices.simulated import ProgramAudit  # noqa: F401, as above

    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _enter_fork(order)
            be_program(order["request"], reply)
            return  # and end as any program does
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{shell_code(status)}\n")
        sys.stdout.flush()


def _enter_fork(order: Mapping[str, Any]) -> None:
    """Read nothing, and write to files."""
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115, to the end
    os.dup2(sys.stdin.fileno(), 0)
    for stream, path in ((1, order["output"]), (2, f"{order['output']}{OF_ERRORS}")):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)


OF_ERRORS: Final = ".errors"
"""Added to the name of the file that has what a program prints, for its errors."""


# The files of the project.


def _refuse(files: Iterable[Path], *, allow_dirty: bool) -> None:
    """Raise ``UsageError`` if one of *files* is a link, or git could not bring it back."""
    for file in sorted(files):
        why = "it is a link" if file.is_symlink() else ""
        if not why and not allow_dirty and _is_dirty(file):
            why = "git has no copy: commit it, look at --diff, or add --allow-dirty"
        if why:
            msg = f"{file}: --fix does not write it, {why}"
            raise UsageError(msg, ErrorId.GP120)


def _is_dirty(file: Path) -> bool:
    asked = ("status", "--porcelain", "--ignored", "--", file.name)
    status = run_git(file.parent, *asked)
    return bool(status.returncode or status.stdout)


def _written(found: Proven) -> Iterator[Path]:
    """Write all files, each whole or not at all; yield which."""
    for name, (before, after) in found.texts.items():
        file = Path(name)
        if file.is_symlink() or text_of(file) != before:
            msg = f"{file}: --fix does not write it, it was changed while edits were tried"
            raise UsageError(msg, ErrorId.GP120)
        replace_file(file, encoded(after, file))
        yield file


def _show(
    arguments: argparse.Namespace,
    found: Proven,
    before: Ran,
    candidates: Candidates,
    written: Sequence[Path],
) -> None:
    here = Path.cwd()
    if arguments.json and found.after.audit:
        document = audit_document(found.after.audit, found.after.notes)
        fixes = fixes_document(found, candidates.by_hand, written)
        print_json({**document, "fixes": fixes})
        return
    sys.stdout.write(printed(line for line in diff_lines(found.texts, here)))
    lines = proof_lines(found, before, candidates, here, verbose=arguments.verbose)
    sys.stdout.write(printed(lines))
    for file in written:
        sys.stdout.write(f"written: {relative(file, here)}\n")
