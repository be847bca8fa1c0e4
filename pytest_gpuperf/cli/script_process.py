"""A process of its own for the program that a command runs, and what it reports.

It shows the time that has passed, and remembers the processes that the program starts.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial, wraps
from itertools import repeat
from multiprocessing.process import BaseProcess, active_children
from pathlib import Path
from signal import SIGKILL, SIGTERM
from subprocess import DEVNULL, Popen
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from ..devices.audit_record import StepAudit
from ..devices.own_code import checkout_of
from ..devices.simulated import simulated_gpu
from ..devices.source_lines import site_of_caller
from ..errors import ErrorId, UsageError
from ..files import scratch_folder
from ..model.ab import Sketch, TrainingRecord
from ..model.codec import decode, encode
from ..model.environment import AS_INSTALLED, Overlay
from ..model.finding import Location, Phase
from ..model.measurement import Forecast, Saving
from ..model.metrics import counted
from ..runner.relocation import Relocation, hide, relocate
from ..sharing.processes import (
    EXIT_INTERRUPTED,
    PASSIVE,
    Reply,
    interrupts_left_to_child,
    shared_numbers,
    shell_code,
    spawn,
    terminations_passed_on,
)
from ..worker import draws
from . import RANK_LAUNCHERS
from .script import Loaded, Program, check_script, launched, load, run


if TYPE_CHECKING:
    from ..devices.simulated import ProgramAudit, ProgramMemory, SimulatedGpu


# The program that a command runs, as its command line names it.

REST: Final = "SCRIPT [-- arguments...]"


def add_program(parser: argparse.ArgumentParser) -> None:
    """Declare the program and the folder of the lines that are named."""
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="script to run")
    parser.add_argument(
        "-m", dest="module", metavar="MODULE", help="run a module, as python -m does"
    )
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="folder of the code whose lines to name, besides editable installs "
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
    from ..devices.simulated import without_own_frames

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


# The process of the program: it becomes the program's, on the simulated GPU.


class Asked(Enum):
    """What is asked of a program."""

    AUDIT = "audit"
    MEMORY = "memory"
    TRAINING = "training"
    TRIAL = "trial"
    """What an audit and a training show, of the whole program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRequest:
    """A program to run, the folder of the lines to name, and what is asked of it.

    A forecast of memory ends after ``steps``, or later if memory grows; it applies ``saving``
    in the program's place. ``values`` is that of ``simulated_gpu``. As one side of a comparison
    it has another copy of the project, and other ``packages``. Files that are ``edited`` have
    these texts. The file ``whereabouts`` has the numbers of ``doing``.
    """

    program: Program
    root: str
    asked: Asked
    steps: int = 0
    values: bool = True
    saving: Saving | None = None
    relocation: Relocation | None = None
    packages: Overlay = AS_INSTALLED
    edited: Mapping[str, str] = field(default_factory=dict)
    whereabouts: str = ""

    def doing(self, step: int, ops: int) -> str:
        """Say what is going on in *step*, if that is not 0, else after *ops* operations."""
        saving = f" with {self.saving.value}" if self.saving else ""
        where = f", {ops:,} operations" if ops else ""
        if step:
            where = f", step {step}"
            where += f" of {self.steps}" if step <= self.steps else ""
        return f"{self.asked.value}: {self.program.name}{saving}{where}"

    def shared_whereabouts(self) -> memoryview[int]:
        """Return the step and the operations, as the program and its forks count them.

        The last number says whether a fork became a new Python.
        """
        return shared_numbers(Path(self.whereabouts), 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptAnswer:
    """What was found, as far as it was asked, or why the program was not started.

    ``notes`` say what else must be known to read what was found, ``unchecked`` what was not
    checked, so that the command fails.
    """

    audit: StepAudit | None = None
    forecast: Forecast | None = None
    training: TrainingRecord | None = None
    peak_bytes: int = 0
    gpu_draws: int = 0
    results: Mapping[str, Sketch] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    refusal: str | None = None


class Output(Enum):
    """Where the program's output goes; only NOWHERE redirects its errors as well."""

    SHOWN = None
    ERRORS = 2  # the file of standard error
    NOWHERE = DEVNULL

    @property
    def streams(self) -> dict[str, int | None]:
        """What ``Popen`` calls it."""
        errors = DEVNULL if self is Output.NOWHERE else None
        return {"stdout": self.value, "stderr": errors}


def run_program(request: ScriptRequest, **streams: Any) -> tuple[int, ScriptAnswer]:
    """Run the program in a process of its own: its exit code and what was found.

    *streams* and the folder are those of ``Popen``. Raises ``UsageError`` if there is no
    such program.
    """
    variables = {**PASSIVE, **(streams.pop("env", None) or os.environ)}
    # Ctrl-C reaches both processes: the child ends as its own code decides, and its
    # exit code is passed on.
    with scratch_folder() as folder, interrupts_left_to_child():
        request = replace(request, whereabouts=str(Path(folder, "whereabouts")))
        numbers = request.shared_whereabouts()
        line = standard_error(lambda: request.doing(*numbers[:2]))
        with elapsed_shown(line, Event()):
            code, answer = spawn(
                "pytest_gpuperf.cli.script_process:be_program",
                request,
                meanwhile=terminations_passed_on,
                env=variables,
                **streams,
            )
    found = decode(ScriptAnswer, answer or {})
    if found.refusal is not None:
        raise UsageError(found.refusal, ErrorId.GP110)
    return shell_code(code), found


def unfinished(program: Program, code: int) -> str:
    """Say that *program* ended without an answer."""
    if code == EXIT_INTERRUPTED:
        return f"{program.name} was interrupted before it left findings"
    return (
        f"{program.name} ended with exit status {code} in a way that left no findings, "
        "as os._exit and a killed process do; end it as a script ends"
    )


NO_NUMPY: Final = "Failed to initialize NumPy"
"""How torch, when it is imported, warns of an optional package that is not there."""


def be_program(raw: Mapping[str, Any], reply: Reply) -> None:
    """Run the program of a ``ScriptRequest``, watched, until this process ends."""
    request = decode(ScriptRequest, raw)
    if request.relocation is not None:
        relocate(request.relocation)
    hide(request.packages.hidden, request.packages.without)
    warnings.filterwarnings("ignore", NO_NUMPY, UserWarning)
    undo = ExitStack()
    gpu = undo.enter_context(simulated_gpu(request.root, values=request.values))
    found = WATCHES[request.asked](request, gpu, undo, reply)
    try:
        if request.edited:
            from ..fixes.sources import put_in_place

            put_in_place(request.edited)
        loaded = load(request.program, request.edited)
    except UsageError as error:
        reply(encode(ScriptAnswer(refusal=str(error))))
        return
    if request.saving is not None:
        from ..measure.forecast import applied

        undo.enter_context(applied(request.saving))
    end = _End(found, undo, reply)
    # The functions registered by the program and its threads come first.
    atexit.register(end.at_exit)
    # One that is ignored, as a parent can ask for, stays so. A peak is that of all steps.
    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_default and request.asked is Asked.AUDIT:
        signal.signal(signal.SIGTERM, end.by_signal)
    run_tidily(loaded)


Found = Callable[[], ScriptAnswer]


def _audited(
    request: ScriptRequest, gpu: SimulatedGpu, undo: ExitStack, reply: Reply
) -> Found:
    from ..devices.simulated import ProgramAudit

    # What is there by now stays, and to look through it takes most of a collection.
    gc.freeze()
    program = ProgramAudit(gpu)
    undo.callback(program.close)
    children = _watched_children(request, program)
    if request.relocation is not None:  # as one side: which lines run other operations?
        gpu.recorder.locates_work = True
        undo.enter_context(gpu.recorder.log.following_modules())

    def found() -> ScriptAnswer:
        notes = (*program.notes(), *children.notes())
        unchecked = (*children.unchecked(),)
        return ScriptAnswer(
            audit=program.audit(),
            peak_bytes=program.live.peak_bytes,
            notes=notes,
            unchecked=unchecked,
        )

    children.leave = lambda: reply(encode(found()))
    return found


def _remembered(
    request: ScriptRequest, _: SimulatedGpu, undo: ExitStack, reply: Reply
) -> Found:
    from ..devices.simulated import watching_program

    gc.freeze()
    memory = undo.enter_context(watching_program(request.root, request.steps))
    children = _watched_children(request, memory)

    def found() -> ScriptAnswer:
        from ..measure.forecast import forecast_of_program

        forecast = forecast_of_program(memory)
        forecast = replace(forecast, notes=(*forecast.notes, *children.notes()))
        return ScriptAnswer(forecast=forecast, unchecked=(*children.unchecked(),))

    children.leave = lambda: reply(encode(found()))
    return found


def _watched_children(
    request: ScriptRequest, watch: ProgramAudit | ProgramMemory
) -> ChildProcesses:
    """Let *watch* count operations, apart from those in forks, and remember processes."""
    numbers, live = request.shared_whereabouts(), watch.live
    live.whereabouts, forked = numbers[:2], numbers[2:]
    os.register_at_fork(after_in_child=lambda: setattr(live, "whereabouts", forked))
    children = ChildProcesses(request.root, forked)
    children.watch()
    return children


def _trained(_: ScriptRequest, __: SimulatedGpu, undo: ExitStack, ___: Reply) -> Found:
    from ..compare_steps.training_record import recording_program
    from ..devices.simulated import BACKING

    draws.begin(0)
    draws.watch()
    record = undo.enter_context(recording_program())

    def found() -> ScriptAnswer:
        missing = BACKING.switched or ""
        training = replace(record(), unseeded=draws.are_drawn(), missing=missing)
        return ScriptAnswer(training=training)

    return found


def _tried(
    request: ScriptRequest, gpu: SimulatedGpu, undo: ExitStack, reply: Reply
) -> Found:
    from ..compare_steps.training_record import recording_program, results_of
    from ..devices.simulated import BACKING, unrecorded

    draws.begin(0)
    draws.watch()
    record = undo.enter_context(recording_program(unrecorded))
    audited = _audited(request, gpu, undo, reply)
    drawn = gpu.recorder.count_draws()
    written: dict[str, None] = {}

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        # A descriptor is of a file that was opened before.
        if writes and not isinstance(arguments[0], int):
            written[str(Path(os.fsdecode(arguments[0])).absolute())] = None

    sys.addaudithook(note)

    def found() -> ScriptAnswer:
        answer = audited()
        training = replace(
            record(), unseeded=draws.are_drawn(), missing=BACKING.switched or ""
        )
        with unrecorded():
            results = results_of(vars(sys.modules["__main__"]))
        return replace(
            answer,
            training=training,
            results=results,
            gpu_draws=drawn.total(),
            written=tuple(written),
        )

    return found


WATCHES: Final = {
    Asked.AUDIT: _audited,
    Asked.MEMORY: _remembered,
    Asked.TRAINING: _trained,
    Asked.TRIAL: _tried,
}


class _End:
    """Leaves what was *found* when the process ends, but not when a fork of it does."""

    def __init__(self, found: Found, undo: ExitStack, reply: Reply) -> None:
        self._found = found
        self._undo = undo
        self._reply = reply
        # A fork, such as a DataLoader's worker, inherits exit handlers and signals.
        self._process = os.getpid()

    def at_exit(self) -> None:
        """Leave it, and end the pretence."""
        if os.getpid() != self._process:
            return
        join_children()
        self._reply(encode(self._found()))
        try:
            self._undo.close()
        except LookupError:  # the saving has nothing to be applied to
            self._reply(encode(ScriptAnswer()))

    def by_signal(self, number: int, _: object) -> None:
        """Leave what was found so far, and end by the signal *number* all the same."""
        # Another one would cut off the answer: ``timeout`` sends two.
        signal.signal(number, signal.SIG_IGN)
        if os.getpid() == self._process:
            name, found = signal.Signals(number).name, self._found()
            note = f"{name} ended it: this is what it did before"
            self._reply(encode(replace(found, notes=(*found.notes, note))))
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


# Says on standard error what a command is at, if that takes more than seconds.


TERMINAL_SECONDS: Final = 2.0
"""Until the line appears on a terminal, and between two changes of it."""

FIRST_LOG_SECONDS: Final = 10.0
"""Until the first line of a log, whose lines stay."""

LOG_SECONDS: Final = 30.0
"""Between two lines of a log."""


class ElapsedLine:
    """Writes the current activity and its duration: over and over, or as lines of a log."""

    def __init__(
        self,
        doing: Callable[[], str],
        write: Callable[[str], object],
        *,
        is_terminal: bool,
    ) -> None:
        self._doing = doing
        self._write = write
        self._is_terminal = is_terminal
        self._columns = 0

    def due_seconds(self) -> Iterator[float]:
        """Yield the time until the line is due, and then between two of them."""
        yield TERMINAL_SECONDS if self._is_terminal else FIRST_LOG_SECONDS
        yield from repeat(TERMINAL_SECONDS if self._is_terminal else LOG_SECONDS)

    def show(self, seconds: float) -> None:
        """Say that it has taken so many *seconds*."""
        text = f"gpuperf: {self._doing()}, {seconds:.0f} s"
        over = text.ljust(self._columns)
        self._columns = len(over)
        # What the program itself prints begins at the left, over this line.
        self._write(f"{over}\r" if self._is_terminal else f"{text}\n")

    def erase(self) -> None:
        """Leave an empty line of a terminal for others to write on."""
        if self._is_terminal and self._columns:
            self._write(f"{' ' * self._columns}\r")


@contextmanager
def elapsed_shown(
    line: ElapsedLine,
    is_over: threading.Event,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Show *line* whenever it is due while the block runs; *is_over* ends that."""
    start = now()

    def follow() -> None:
        due = line.due_seconds()
        while not is_over.wait(next(due)):
            line.show(now() - start)

    thread = threading.Thread(target=follow, name="gpuperf-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        line.erase()


def standard_error(doing: Callable[[], str]) -> ElapsedLine:
    """Return the line of a command on its standard error."""

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    return ElapsedLine(doing, write, is_terminal=sys.stderr.isatty())


# The processes that a program starts: the simulated GPU is in none but its own.


Child = BaseProcess | Popen[Any]

Code = Callable[[], int | None]
"""Returns the exit code of a process, and none while it runs."""

OF_LIBRARIES: Final = (
    "torch.utils.data.",
    "torch._inductor.",
    "multiprocessing.managers.",
)
"""Modules whose processes load batches, compile, or keep the objects of a manager."""

ENDED_WELL: Final = (None, 0, -SIGTERM, -SIGKILL)
"""Exit codes of a process that ran on, has done its work, or was ended by the program."""

TO_CHECK: Final = "to check it, call it in the script's own process"


class ChildProcesses:
    """Remembers which processes the program starts, and whether they need a GPU.

    A new Python has none. A fork has a copy of the simulated one, and counts its operations
    in *forked*, and whether it becomes a new Python. ``leave`` is called before the program
    itself becomes another one.
    """

    def __init__(self, root: str, forked: memoryview[int]) -> None:
        self._root = root
        self._forked = forked
        self._process = os.getpid()
        self._started: defaultdict[Location | None, list[Code]] = defaultdict(list)
        self._forks: defaultdict[Location | None, list[int]] = defaultdict(list)
        self._codes: dict[int, int] = {}
        self._became: Location | None = None
        self.leave: Callable[[], None] = lambda: None

    def watch(self) -> None:
        """Remember each process that is started from now on."""
        for owner, names, watching in (
            (BaseProcess, ("start",), self._starting),
            (Popen, ("__init__",), self._starting),
            (os, ("system", "posix_spawn", "posix_spawnp"), self._spawning),
            (os, ("fork",), self._forking),
            (os, ("wait", "waitpid"), self._waiting),
            (os, ("execv", "execve"), self._becoming),
        ):
            for name in names:
                plain = getattr(owner, name)
                setattr(owner, name, wraps(plain)(watching(plain)))

    def notes(self) -> Iterator[str]:
        """Say which lines started a Python that may have chosen the CPU."""
        for place, codes in self._started.items():
            if not any(map(_has_failed, codes)):
                count = counted(len(codes), "process")
                yield f"{_at(place)} started {count} without a GPU: what they do is not counted"

    def unchecked(self) -> Iterator[str]:
        """Say what was not checked although it needs a GPU, or may."""
        for what in (*self._failed(), *self._running()):
            yield f"{what}: what they do was not checked; {TO_CHECK}"
        if self._became:
            what = f"{_at(self._became)} makes another Python of the process, without a GPU"
            yield f"{what}: what it does was not checked; {TO_CHECK}"
        if self._forked[1]:
            count = counted(self._forked[1], "operation")
            yield f"{count} of forked processes went unchecked; {TO_CHECK}"

    def _failed(self) -> Iterator[str]:
        # A fork has a GPU, unless it became a Python.
        forks = self._forks if self._forked[2] else {}
        of_forks: dict[Location | None, list[Code]] = {
            place: [partial(self._code_of, pid) for pid in pids]
            for place, pids in forks.items()
        }
        for place, codes in (*self._started.items(), *of_forks.items()):
            if failed := sum(map(_has_failed, codes)):
                count = counted(failed, "process")
                yield f"{_at(place)} started {count} that failed without a GPU"

    def _running(self) -> Iterator[str]:
        for place, forks in self._forks.items():
            if running := [*map(self._code_of, forks)].count(None):
                count = counted(running, "process")
                yield f"{_at(place)} forked {count} that the script does not wait for"

    def _code_of(self, pid: int) -> int | None:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return self._codes.get(pid, 0)
        return self._codes.get(pid)

    def _place(self, caller: FrameType) -> Location | None:
        site = site_of_caller(self._root, phase=Phase.FORWARD, caller=caller)
        return site.location

    # Each of these makes a function of the same arguments that remembers what it does.

    def _starting(self, start: Callable[..., None]) -> Callable[..., None]:
        def started(child: Child, *arguments: Any, **options: Any) -> None:
            caller = sys._getframe(1)  # noqa: SLF001, inspect.stack() reads sources
            start(child, *arguments, **options)
            if _may_train(child, caller):
                self._started[self._place(caller)].append(partial(_exit_code, child))

        return started

    def _spawning(self, spawn: Callable[..., int]) -> Callable[..., int]:
        def spawned(command: Any, *arguments: Any, **options: Any) -> int:
            found = spawn(command, *arguments, **options)
            if _is_python([command, *next(iter(arguments), ())]):
                caller = sys._getframe(1)  # noqa: SLF001, as above
                # A shell is waited for, and its status returned.
                code = partial(os.waitstatus_to_exitcode, found)
                later = partial(self._code_of, found)
                self._started[self._place(caller)].append(later if arguments else code)
            return found

        return spawned

    def _forking(self, fork: Callable[[], int]) -> Callable[[], int]:
        def forked() -> int:
            caller = sys._getframe(1)  # noqa: SLF001, as above
            pid = fork()
            # A process of multiprocessing has started already, and is waited for.
            if pid and caller.f_globals.get("__name__") != "multiprocessing.popen_fork":
                self._forks[self._place(caller)].append(pid)
            return pid

        return forked

    def _waiting(self, wait: Callable[..., tuple[int, int]]) -> Callable[..., Any]:
        def waited(*arguments: Any) -> tuple[int, int]:
            pid, status = wait(*arguments)
            with suppress(ValueError):  # of one that is only stopped
                self._codes[pid] = os.waitstatus_to_exitcode(status)
            return pid, status

        return waited

    def _becoming(self, become: Callable[..., None]) -> Callable[..., None]:
        def becomes(command: Any, words: Any, *environment: Any) -> None:
            is_python = _is_python([command, *words])
            if os.getpid() == self._process:
                caller = sys._getframe(1)  # noqa: SLF001, as above
                self._became = self._place(caller) if is_python else None
                self.leave()
            elif is_python:
                self._forked[2] = 1
            become(command, words, *environment)

        return becomes


def join_children() -> None:
    """Wait for children, as multiprocessing does when a program ends."""
    for child in active_children():
        if not child.daemon:
            child.join()


def _exit_code(child: Child) -> int | None:
    return child.poll() if isinstance(child, Popen) else child.exitcode


def _has_failed(code: Code) -> bool:
    return code() not in ENDED_WELL


def _may_train(child: Child, caller: FrameType) -> bool:
    """Whether it is a new Python, and *caller* no library that needs no GPU there."""
    if f"{caller.f_globals.get('__name__')}.".startswith(OF_LIBRARIES):
        return False
    if isinstance(child, Popen):
        return _is_python(child.args)
    return bool(getattr(child, "_popen").method != "fork")  # noqa: B009, private


def _is_python(command: Any) -> bool:
    """Whether *command*, as ``Popen`` takes it, starts a Python or ranks."""
    words = command if isinstance(command, (list, tuple)) else [command]
    text = " ".join(os.fsdecode(word) for word in words)
    names = [Path(word).name for word in text.split()]
    return any(
        name in RANK_LAUNCHERS or re.fullmatch(r"python[\d.]*", name) for name in names
    )


def _at(place: Location | None) -> str:
    if place is None:
        return "the script"
    return f"{place.file.removeprefix(f'{Path.cwd()}{os.sep}')}:{place.line}"
