"""The client of the fork server: start it, run one job in a fresh process, end it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Final

from ..errors import RunError
from ..model.codec import encode
from ..sharing.last_words import death
from ..sharing.last_words import last_words
from .relocation import Relocation
from .saying import Ear


HEAVY_MODULES: Final = (
    "torch",
    "torch._dynamo",
    "torch.profiler",
    "pytest_gpuperf.devices.cpu",
    "pytest_gpuperf.devices.cuda",
    "pytest_gpuperf.devices.host_syncs",
    "pytest_gpuperf.devices.live_bytes",
)
"""Imported once in the server: a child would pay seconds for them. An optimizer
imports torch._dynamo."""

START_SECONDS: Final = 120.0

KILL_SECONDS: Final = 5.0
"""After which a killed child that does not end is no longer waited for."""

_BOOTSTRAP: Final = (
    "import sys; sys.path = [place for place in sys.path if place]; "
    "import json; order = json.loads(sys.argv[1]); "
    "sys.path[:] = order['search_path']; "
    "from pytest_gpuperf.runs.server import main; "
    "main(order['preload'], order['warm'], order['relocation'], order['mouth'])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call in a fresh process: ``entry`` is ``module:function``, the rest JSON."""

    entry: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Running:
    """A job that was started, and when there is no more waiting for it."""

    result: Path
    output: Path
    seconds: float
    until: float
    is_killed: bool = False

    def killed(self, now: float) -> _Running:
        return replace(self, until=now + KILL_SECONDS, is_killed=True)

    def answer(self, code: int) -> Any:
        """Return the job's result, or the ``RunError`` that stands for it."""
        if self.is_killed:
            msg = (
                f"the measuring process gave no result in {self.seconds:g} s and was "
                "killed; does it wait for something? If it only needs longer, raise "
                f"--gpuperf-seconds: {last_words(self.output)}"
            )
            return RunError(msg)
        if not self.result.exists():
            msg = f"the measuring process {death(code)}: {last_words(self.output)}"
            return RunError(msg)
        return json.loads(self.result.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job's number, and what it returned or the ``RunError`` it ended with."""

    job: int
    answer: Any


class ForkServer:
    """A process that has imported what is heavy and forks a fresh child a job.

    Forking is safe for CUDA because the server never touches it: torch's answer to
    ``is_available`` comes from NVML there.
    """

    def __init__(
        self,
        preload: Sequence[str],
        warm: str | None = None,
        relocation: Relocation | None = None,
        hear: Callable[..., None] | None = None,
    ) -> None:
        """*hear* is told what children ``say``, in a call of ``run`` or ``ended``."""
        self._ear = Ear(hear) if hear else None
        self._folder = tempfile.TemporaryDirectory(prefix="gpuperf-")
        self._jobs = 0
        self._running: dict[int, _Running] = {}
        self._buffered = b""
        self._is_ready = False
        self._process = self._launch(preload, warm, relocation)
        if self._ear is not None:
            os.close(self._ear.mouth)  # the server's is its own

    @property
    def _stderr(self) -> Path:
        return Path(self._folder.name, "server.txt")

    def _launch(
        self, preload: Sequence[str], warm: str | None, relocation: Relocation | None
    ) -> subprocess.Popen[bytes]:
        order = {
            "search_path": [str(place) for place in sys.path],
            "preload": list(preload),
            "warm": warm,
            "relocation": encode(relocation),
            "mouth": self._ear and self._ear.mouth,
        }
        environment = {
            key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"
        }
        if relocation is not None:
            environment.update(moved_path(environment, relocation))
        with self._stderr.open("wb") as stderr:
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-u", "-c", _BOOTSTRAP, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                start_new_session=True,
                bufsize=0,
                pass_fds=(self._ear.mouth,) if self._ear else (),
            )

    def wait_until_ready(self) -> None:
        """Wait for the imports; raise ``RunError`` where the server cannot start."""
        try:
            message = self._receive(time.monotonic() + START_SECONDS)
        except RunError:
            message = None
        if message is None:
            msg = f"the measuring server could not start: {last_words(self._stderr)}"
            raise RunError(msg)
        self._is_ready = True

    def run(self, job: Job, seconds: float) -> Any:
        """Return what *job*'s function returned, in at most *seconds*.

        Raises ``RunError`` with the end of the child's output where it died, wrote no
        result or had to be killed.
        """
        self.start(job, seconds)
        ended = None
        while ended is None:
            ended = self.ended(seconds)
        if isinstance(ended.answer, RunError):
            raise ended.answer
        return ended.answer

    def start(self, job: Job, seconds: float) -> int:
        """Start *job*, which ``ended`` will tell of by the number returned.

        Raises ``RunError`` where the server is dead.
        """
        self._jobs += 1
        result = Path(self._folder.name, f"{self._jobs}.json")
        output = result.with_suffix(".txt")
        self._send(
            {
                "job": self._jobs,
                "entry": job.entry,
                "request": job.request,
                "result": str(result),
                "output": str(output),
            }
        )
        until = time.monotonic() + seconds
        self._running[self._jobs] = _Running(result, output, seconds, until)
        return self._jobs

    def ended(self, seconds: float) -> Ended | None:
        """Return a job that has ended; ``None`` where none did in *seconds*."""
        until = time.monotonic() + seconds
        while self._running:
            due = min(running.until for running in self._running.values())
            try:
                message = self._receive(min(until, due))
            except RunError as error:
                job, _ = self._running.popitem()
                return Ended(job=job, answer=error)
            if message is not None and message.get("ended") in self._running:
                running = self._running.pop(message["ended"])
                answer = running.answer(message["code"])
                return Ended(job=message["ended"], answer=answer)
            lost = self._kill_the_late()
            if lost is not None or (message is None and until < due):
                return lost
        return None

    def _kill_the_late(self) -> Ended | None:
        """Return a job that did not even end when it was killed."""
        now = time.monotonic()
        for job, running in self._running.items():
            if running.until <= now and running.is_killed:
                del self._running[job]
                return Ended(job=job, answer=running.answer(code=0))
            if running.until <= now:
                self._running[job] = running.killed(now)
                self._send({"kill": job})
        return None

    def close(self) -> None:
        """End the server and every child; what they wrote is removed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._stop_listening()
        if not self._is_ready:
            self._process.kill()  # it is importing, and has no children yet
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _send(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            msg = f"the measuring server died: {last_words(self._stderr)}"
            raise RunError(msg) from None

    def _receive(self, until: float) -> dict[str, Any] | None:
        """Return the next reply; ``None`` where there is none in time."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        while b"\n" not in self._buffered:
            ready = self._ready(max(until - time.monotonic(), 0))
            if not ready:
                return None
            if self._ear is not None and self._ear in ready:
                self._listen(self._ear)
            if self._process.stdout not in ready:
                continue
            received = os.read(self._process.stdout.fileno(), 65536)
            if not received:
                msg = f"the measuring server died: {last_words(self._stderr)}"
                raise RunError(msg)
            self._buffered += received
        line, _, self._buffered = self._buffered.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _ready(self, seconds: float) -> list[Any]:
        """Return who has said something, in at most *seconds*."""
        places: list[Any] = [self._process.stdout, *([self._ear] if self._ear else [])]
        ready, _, _ = select.select(places, [], [], seconds)
        return ready

    def _listen(self, ear: Ear) -> None:
        if not ear.listen():
            self._stop_listening()

    def _stop_listening(self) -> None:
        if self._ear is not None:
            self._ear.close()
            self._ear = None


def moved_path(
    environment: Mapping[str, str], relocation: Relocation
) -> Mapping[str, str]:
    """Python's search path for what a measured test starts, where there is one."""
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    moved = os.pathsep.join(place and relocation.moved(place) for place in places)
    return {"PYTHONPATH": moved} if moved else {}
