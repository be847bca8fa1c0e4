"""The client of the fork server: start it, run one job in a fresh process, end it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Final

from ..errors import RunError
from ..model.codec import encode
from .relocation import Relocation


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

FATAL: Final = "Fatal Python error"
FATAL_LINES: Final = 6
LAST_LINES: Final = 30

_BOOTSTRAP: Final = (
    "import sys; sys.path = [place for place in sys.path if place]; "
    "import json; order = json.loads(sys.argv[1]); "
    "sys.path[:] = order['search_path']; "
    "from pytest_gpuperf.runs.server import main; "
    "main(order['preload'], order['warm'], order['relocation'])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call in a fresh process: ``entry`` is ``module:function``, the rest JSON."""

    entry: str
    request: Mapping[str, Any]


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
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gpuperf-")
        self._jobs = 0
        self._buffered = b""
        self._is_ready = False
        self._process = self._launch(preload, warm, relocation)

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
            )

    def wait_until_ready(self) -> None:
        """Wait for the imports; raise ``RunError`` where the server cannot start."""
        try:
            message = self._receive(time.monotonic() + START_SECONDS)
        except RunError:
            message = None
        if message is None:
            msg = f"the measuring server could not start: {_last_words(self._stderr)}"
            raise RunError(msg)
        self._is_ready = True

    def run(self, job: Job, seconds: float) -> Any:
        """Return what *job*'s function returned, in at most *seconds*.

        Raises ``RunError`` with the end of the child's output where it died, wrote no
        result or had to be killed.
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
        code = self._wait(self._jobs, seconds)
        if code is None:
            msg = (
                f"the measuring process gave no result in {seconds:g} s and was killed; "
                "does it wait for something? If it only needs longer, raise "
                f"--gpuperf-seconds: {_last_words(output)}"
            )
            raise RunError(msg)
        if not result.exists():
            msg = f"the measuring process {_death(code)}: {_last_words(output)}"
            raise RunError(msg)
        return json.loads(result.read_text(encoding="utf-8"))

    def close(self) -> None:
        """End the server and every child; what they wrote is removed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
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
            msg = f"the measuring server died: {_last_words(self._stderr)}"
            raise RunError(msg) from None

    def _wait(self, job: int, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        while True:
            message = self._receive(until)
            if message is None:
                self._send({"kill": job})
                self._receive(time.monotonic() + 5)
                return None
            if message.get("ended") == job:
                return int(message["code"])

    def _receive(self, until: float) -> dict[str, Any] | None:
        """Return the next reply; ``None`` where there is none in time."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        while b"\n" not in self._buffered:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(left, 0))
            if not ready:
                return None
            received = os.read(self._process.stdout.fileno(), 65536)
            if not received:
                msg = f"the measuring server died: {_last_words(self._stderr)}"
                raise RunError(msg)
            self._buffered += received
        line, _, self._buffered = self._buffered.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply


def moved_path(
    environment: Mapping[str, str], relocation: Relocation
) -> Mapping[str, str]:
    """Python's search path for what a measured test starts, where there is one."""
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    moved = os.pathsep.join(place and relocation.moved(place) for place in places)
    return {"PYTHONPATH": moved} if moved else {}


def _death(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"


def _last_words(output: Path) -> str:
    """Return what says most about a death: the fatal error's top, else the last lines."""
    try:
        text = output.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        text = ""
    _, fatal, stack = text.rpartition(FATAL)
    lines = (fatal + stack).splitlines()
    shown = lines[:FATAL_LINES] if fatal else lines[-LAST_LINES:]
    return "\n".join(shown) or "it printed nothing"
