"""The client of the fork server: start it, run one job in a fresh process, end it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..devices import kind_without_torch
from ..devices.process_time import HostClock, Patience, UsedTime, now_s, patience_for
from ..errors import ErrorId, GpuperfError, RunError
from ..files import scratch_folder
from ..model.codec import encode
from ..model.environment import AS_INSTALLED, Capability, DeviceKind, Overlay
from ..sharing.processes import PASSIVE, death, kill_group, last_words
from .relocation import Relocation, moved_path


# Progress messages of measuring processes, for whoever listens.
#
# All of them write lines into one pipe that never makes them wait: what does not fit is
# lost. Where nobody listens nothing is written.

LONGEST_REQUEST: Final = 512
"""Bytes that POSIX writes into a pipe in one piece: lines of two processes never mix."""

SELDOM_SECONDS: Final = 1.0
"""Least time between two optional messages: short steps send none, and the listener
wakes up during few of the timed rounds of others."""

_progress_ends: list[int] = []
_sent_at: list[int] = []


class ProgressPipe:
    """The read end of a pipe, for ``on_progress``, and its ``write_end``."""

    def __init__(self, on_progress: Callable[..., None]) -> None:
        self.on_progress = on_progress
        self._end, self.write_end = os.pipe()
        self._buffered = b""

    def fileno(self) -> int:
        """Return what ``select`` waits for."""
        return self._end

    def read(self) -> bool:
        """Read what has arrived; return false if all writers have closed the pipe."""
        received = os.read(self._end, 65536)
        *lines, self._buffered = (self._buffered + received).split(b"\n")
        for line in lines:
            self.on_progress(*json.loads(line))
        return bool(received)

    def close(self) -> None:
        """Close the read end."""
        os.close(self._end)


def send_progress_to(progress: int) -> None:
    """Let this process and its forks write to *progress*, but no other program."""
    os.set_blocking(progress, False)
    os.set_inheritable(progress, False)  # noqa: FBT003, it takes no keyword
    _progress_ends[:] = [progress]


def send_progress(*texts: str) -> None:
    """Send *texts* to the listener; it takes microseconds and never blocks."""
    line = json.dumps(texts).encode() + b"\n"
    _sent_at[:] = [HostClock.wall_ns()]
    for progress in _progress_ends if len(line) <= LONGEST_REQUEST else ():
        # EAGAIN: the pipe is full. EPIPE: nobody reads any more. A lost progress
        # message is better than a step that is measured slower.
        with suppress(OSError):
            os.write(progress, line)


def send_progress_seldom(*texts: str) -> None:
    """Send *texts*, unless something was sent in the last ``SELDOM_SECONDS``."""
    if not _sent_at or HostClock.wall_ns() - _sent_at[0] >= SELDOM_SECONDS * 1e9:
        send_progress(*texts)


OF_COMPILER: Final = "torch._dynamo"

HEAVY_MODULES: Final = (
    "torch",
    OF_COMPILER,
    "torch.profiler",
    "pytest_gpuperf.devices.cpu",
    "pytest_gpuperf.devices.cuda.device",
    "pytest_gpuperf.devices.simulated.device",
    "pytest_gpuperf.compare_steps.measure",
)
"""Imported once in the server: a child would pay seconds for them, and a test could
replace what measures before it is known. An optimizer imports torch._dynamo."""


def preloaded_for(kind: DeviceKind | None) -> tuple[str, ...]:
    """Return the modules that each process needs which measures on *kind*, or by default."""
    if kind is DeviceKind.SCRIPTED:
        return ()
    if _may_time(kind):
        return HEAVY_MODULES
    others = (name for name in HEAVY_MODULES if name != OF_COMPILER)
    return (*others, "pytest_gpuperf.devices.simulated.gpu")


def variables_for(kind: DeviceKind | None) -> Mapping[str, str]:
    """Return the variables of processes that measure on *kind*, or by default."""
    return {} if _may_time(kind) else PASSIVE


def _may_time(kind: DeviceKind | None) -> bool:
    known = kind or kind_without_torch()
    return known is None or known.has(Capability.CLOCK)


HASH_SEED: Final = "PYTHONHASHSEED"
"""Orders the strings of a set: the number of the run, unless the user has set it, so that
a run has the same order in the next session, and the next run another one."""

START_SECONDS: Final = 120.0

CLOSE_SECONDS: Final = 5.0
"""What a server may take to end its children and itself."""

WAITING_SECONDS: Final = 5.0
"""After which whoever waits for a job is shown that it still runs."""

KILL_SECONDS: Final = 5.0
"""After which a killed child that does not end is no longer waited for."""

_BOOTSTRAP: Final = (
    # `python -c` puts "" first on the path, and a project with a `json.py` of its own
    # in the working directory would be imported instead of the library.
    "import sys; sys.path = [place for place in sys.path if place]; "
    "import json; order = json.loads(sys.argv[1]); "
    "sys.path[:] = order['search_path']; "
    "from pytest_gpuperf.runner.fork_server_process import main; "
    "main(order); "
    # Python would free every object of torch one by one, while the client waits.
    "import os; os._exit(0)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call in a fresh process: ``entry`` is ``module:function``, *request* JSON.

    ``limited_by`` is the user's option that says how long it may take, if one does.
    """

    entry: str
    request: Mapping[str, Any]
    limited_by: str = ""


@dataclass(slots=True)
class _Running:
    """A job that was started, and how long it is waited for.

    What it had ``used`` is why it was killed, and ``limit`` says what it could have had.
    """

    number: int
    limit: str
    result: Path
    patience: Patience
    pids: tuple[int, ...] = ()
    used: UsedTime | None = None

    @property
    def output(self) -> Path:
        """The file with what the job prints."""
        return self.result.with_suffix(".txt")

    def answer(self, code: int) -> Any:
        """Return the job's result; raise ``RunError`` if it ended without one."""
        if self.used is not None and not self.result.exists():
            asked = (
                "does it wait for input, a lock or another process"
                if self.used.idle
                else "does it loop for ever"
            )
            msg = (
                f"the measuring process gave no result and was killed: it {self.used}; "
                f"{asked}? {self.limit}; {last_words(self.output)}"
            )
            raise RunError(msg, ErrorId.GP601)
        if not self.result.exists():
            msg = f"the measuring process {death(code)}: {last_words(self.output)}"
            raise RunError(msg, ErrorId.GP602)
        try:
            return json.loads(self.result.read_bytes())
        except (ValueError, RecursionError) as error:
            msg = (
                f"the measuring process left a result that is not JSON ({error}); does "
                "the test replace json or open?"
            )
            raise RunError(msg, ErrorId.GP603) from None


class ForkServer:
    """A process that has imported what is heavy and forks a fresh child a job.

    Forking is safe for CUDA because the server never touches it: torch's answer to
    ``is_available`` comes from NVML there.
    """

    def __init__(  # noqa: PLR0913, all of what a process is
        self,
        preload: Sequence[str],
        warm: str | None = None,
        relocation: Relocation | None = None,
        on_progress: Callable[..., None] | None = None,
        packages: Overlay = AS_INSTALLED,
        *,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """*on_progress* gets what children send, during a call of ``run``.

        *packages* are what they import in place of what is installed, and *variables*
        what is set for them unless the user has set it.
        """
        self._order = {
            "search_path": [*packages.path, *map(str, sys.path)],
            "packages": encode(packages),
            "preload": list(preload),
            "warm": warm,
            "relocation": encode(relocation),
        }
        # As it is now, also for a server that is started later in the session.
        self._directory = str(Path.cwd())
        self._environment = {**(variables or {}), **_environment(relocation, packages)}
        self._on_progress = on_progress
        self._jobs = 0
        self._open(0)

    def _open(self, number: int) -> None:
        self._number = number
        listener = self._on_progress
        self._progress = ProgressPipe(listener) if listener else None
        self._folder = scratch_folder()
        self._buffered = b""
        self._is_ready = False
        self._process = self._launch()
        if self._progress is not None:
            # While any process has a write end open the reader sees no end of file.
            os.close(self._progress.write_end)  # the server's is its own

    def renew(self, number: int) -> None:
        """Begin run *number* with a server of its own.

        All processes of a server have their addresses and the order of strings in common:
        what depends on them would be the same in each run, and prove nothing. Without
        torch no code is measured. Each job of a server that cannot start says so.
        """
        if number != self._number and self._order["preload"]:
            self.close()
            self._open(number)
            with suppress(RunError):
                self.wait_until_ready()

    def send_progress_to(self, on_progress: Callable[..., None]) -> None:
        """Let *on_progress* get what children send, if this server has a pipe for it."""
        if self._progress is not None:
            self._progress.on_progress = self._on_progress = on_progress

    @property
    def _stderr(self) -> Path:
        return Path(self._folder.name, "server.txt")

    def _launch(self) -> subprocess.Popen[bytes]:
        order = {
            **self._order,
            "progress": self._progress and self._progress.write_end,
            "folder": self._folder.name,
        }
        with self._stderr.open("wb") as stderr:
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-u", "-c", _BOOTSTRAP, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=self._directory,
                env={HASH_SEED: str(self._number), **self._environment},
                # Ctrl-C in a terminal goes to the whole process group. The controller
                # alone must decide what is still stored before the children end.
                start_new_session=True,
                bufsize=0,
                pass_fds=(self._progress.write_end,) if self._progress else (),
            )

    def wait_until_ready(self) -> None:
        """Wait for the imports; raise ``RunError`` if the server cannot start."""
        message, used = None, None
        patience, server = patience_for(START_SECONDS), (self._process.pid,)
        with suppress(RunError):
            while message is None and used is None:
                message = self._receive(patience.due)
                used = patience.over(now_s(), server)
        if message is None:
            late = f"it {used}: " if used else ""
            msg = f"the measuring server could not start: {late}{last_words(self._stderr)}"
            raise RunError(msg, ErrorId.GP604)
        self._is_ready = True

    def run(
        self, job: Job, seconds: float, waiting: Callable[[], None] = lambda: None
    ) -> Any:
        """Return what *job*'s function returned, in at most *seconds* of its own time.

        *waiting* is called again and again meanwhile. Raises ``RunError`` with the end of
        the child's output where it died, wrote no result or had to be killed.
        """
        running = self._start(job, seconds)
        while not self._is_lost(running):
            until = min(running.patience.due, now_s() + WAITING_SECONDS)
            try:
                message = self._receive(until)
            except RunError:
                # A job dies with its server, and what it has started does not.
                for pid in running.pids:
                    kill_group(pid)
                raise
            if message is None:
                waiting()
            elif message.get("started") == running.number:
                running.pids = (message["pid"],)
            elif message.get("ended") == running.number:
                return running.answer(message["code"])
        return running.answer(code=0)

    def _start(self, job: Job, seconds: float) -> _Running:
        """Start *job*, on a server anew if this one has died."""
        if self._is_ready and self._process.poll() is not None:
            self.close()
            self._open(self._number)
            self.wait_until_ready()
        self._jobs += 1
        result = Path(self._folder.name, f"{self._jobs}.json")
        limit = f"It had {seconds:g} s of its own time"
        if job.limited_by:
            limit += f" by {job.limited_by}, raise that if it only needs longer"
        running = _Running(self._jobs, limit, result, patience_for(seconds))
        self._send(
            {
                "job": running.number,
                "entry": job.entry,
                "request": job.request,
                "result": str(result),
                "output": str(running.output),
            }
        )
        return running

    def _is_lost(self, running: _Running) -> bool:
        """Kill a job whose time is up; return whether it did not even end by that."""
        used = running.patience.over(now_s(), running.pids or (self._process.pid,))
        if used is None or running.used is not None:
            return used is not None
        running.patience, running.used = patience_for(KILL_SECONDS, *running.pids), used
        self._send({"kill": running.number})
        return False

    def close(self) -> None:
        """End the server and every child; what they wrote is removed."""
        # The end of its input is what tells the server to end every child and itself. A
        # kill would leave that to the kernel.
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._stop_listening()
        if not self._is_ready:
            self._process.kill()  # it is importing, and has no children yet
        patience = patience_for(CLOSE_SECONDS, self._process.pid)
        if patience.outlasted_by(self._process):
            self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _send(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            raise self._death() from None

    def _death(self) -> RunError:
        """Say that the server has died, once it has ended altogether."""
        self._process.kill()
        self._process.wait()
        msg = f"the measuring server died while this ran: {last_words(self._stderr)}"
        return RunError(msg, ErrorId.GP605)

    def _receive(self, until: float) -> dict[str, Any] | None:
        """Return the next reply; ``None`` if there is none in time."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        while b"\n" not in self._buffered:
            ready = self._ready(max(until - now_s(), 0))
            if not ready:
                return None
            if self._progress is not None and self._progress in ready:
                self._read_progress(self._progress)
            if self._process.stdout not in ready:
                continue
            received = os.read(self._process.stdout.fileno(), 65536)
            if not received:
                raise self._death()
            self._buffered += received
        line, _, self._buffered = self._buffered.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _ready(self, seconds: float) -> list[Any]:
        """Return the pipes that can be read, after at most *seconds*."""
        places: list[Any] = [
            self._process.stdout,
            *([self._progress] if self._progress else []),
        ]
        ready, _, _ = select.select(places, [], [], seconds)
        return ready

    def _read_progress(self, pipe: ProgressPipe) -> None:
        if not pipe.read():
            self._stop_listening()

    def _stop_listening(self) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None


def _environment(relocation: Relocation | None, packages: Overlay) -> dict[str, str]:
    found = {
        key: value
        for key, value in os.environ.items()
        # The options in it reach a child with its request. Its pytest would read them
        # again, with those that only the controlling process may have, such as `-n`.
        if key != "PYTEST_ADDOPTS"
    }
    moved = moved_path(found, relocation, packages.path) if relocation else {}
    # NVML, as the variable demands, answers `is_available` without a CUDA context. One
    # made before the fork would be unusable in every child.
    return {**found, **moved, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def measuring_server(kind: DeviceKind | None = None) -> ForkServer:
    """Start the server of processes that measure on *kind*; its progress goes nowhere yet."""
    return ForkServer(
        preloaded_for(kind),
        warm="pytest_gpuperf.worker.child:warm_pytest",
        on_progress=lambda *_: None,
        variables=variables_for(kind),
    )


def inherited() -> tuple[Mapping[str, str], str, frozenset[int]]:
    """Return what a process takes over that is started now, and may change what it is:
    the environment, the directory, the cores."""
    variables = {k: v for k, v in os.environ.items() if not _is_default(k, v)}
    return variables, str(Path.cwd()), _cores()


def _is_default(variable: str, value: str) -> bool:
    """Whether torch sets *variable* to this when it is imported, here as in the server."""
    folder = str(Path(tempfile.gettempdir(), "torchinductor_"))
    return variable == "TORCHINDUCTOR_CACHE_DIR" and value.startswith(folder)


def _cores() -> frozenset[int]:
    known = hasattr(os, "sched_getaffinity")  # on Linux
    return frozenset(os.sched_getaffinity(0) if known else ())


class EarlyServer:
    """A measuring server that imports torch while pytest collects the tests.

    It starts when a test is known that will be measured. Collecting may then set
    ``OMP_NUM_THREADS`` or other variables that torch reads when it is imported. In that
    case ``take`` starts another server, as the early one has not seen them.
    """

    def __init__(self, kind: DeviceKind | None) -> None:
        self._kind = kind
        self._inherited = inherited()
        self._server: ForkServer | None = None

    def start(self) -> None:
        """Start the server, unless it runs; why it cannot is left to ``take``."""
        if self._server is None:
            self._inherited = inherited()
            with suppress(GpuperfError):
                self._server = measuring_server(self._kind)

    def take(self) -> ForkServer:
        """Return a server like one started now; the caller closes it."""
        early, self._server = self._server, None
        if early is not None and self._inherited == inherited():
            return early
        if early is not None:
            early.close()
        return measuring_server(self._kind)

    def close(self) -> None:
        """End the server if nobody has taken it."""
        if self._server is not None:
            self._server.close()
            self._server = None
