"""Fork servers that start in milliseconds: copies of a process that has imported it all.

Each run of the plugin starts a fork server, which imports pytest and, for a real device,
torch: seconds of CPU time that most tests are not about. Here the server of a run that a
test makes in its own process is a fork of one process a worker, which has imported both.
The server's own code runs as it does after a start from nothing: `tests/unit` starts it so,
and so does every run that a test makes in another process.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Final, NoReturn

import pytest

from pytest_gpuperf.devices import SCRIPTED_MODULE
from pytest_gpuperf.runner import fork_server, fork_server_process
from pytest_gpuperf.runner.fork_server_process import end_orphans


READ_AT_IMPORT: Final = ("OMP_", "MKL_", "PYTHON", "PYTORCH_", "TORCH", "CUDA", "LD_")
"""Beginnings of variables that Python or a library reads once: a fork would miss them."""

OF_A_FORK: Final = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}
"""Those of them that do nothing after the imports: the search path is sent."""

PLUGINS: Final = "PYTEST_PLUGINS"

WITH_TORCH: Final = "with_torch"
"""The plugin by which a run on the scripted device has steps of torch."""

FDS: Final = 4
"""Standard input, output and error of a server, and the pipe of its progress."""

_START: Final = "import sys; sys.path[:0] = {path!r}; import warm_servers as w; w.main({fd}, {heavy})"


# In the worker that runs the tests.


class Zygote:
    """A process that forks servers; it ends with the process that has the other end."""

    def __init__(self, environment: Mapping[str, str], *, heavy: bool) -> None:
        self._socket, theirs = socket.socketpair()
        self._environment = _without_the_run(environment)
        start = _START.format(path=sys.path, fd=theirs.fileno(), heavy=heavy)
        with theirs:
            self._process = subprocess.Popen(
                # Unbuffered, as `ForkServer` starts its server: what a child prints before
                # it dies is read.
                [sys.executable, "-u", "-c", start],
                env=self._environment,
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End the process, which reads the end of its orders."""
        self._socket.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The process that forks."""
        return self._process.pid

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a server with *environment* would have imported the same."""
        return _read_at_import(environment) == _read_at_import(self._environment)

    def fork(self, order: Mapping[str, Any], fds: Sequence[int]) -> socket.socket:
        """Start a server with *fds*; return the socket that tells its pid and its end."""
        ours, theirs = socket.socketpair()
        with theirs:
            packed = array.array("i", [theirs.fileno(), *fds])
            text = json.dumps(order).encode()
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]
            self._socket.sendmsg([len(text).to_bytes(8, "big")], ancillary)
            self._socket.sendall(text)
        return ours


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in environment.items()
        if key.startswith(READ_AT_IMPORT) and key not in OF_A_FORK
    }


def _without_the_run(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in environment.items() if not k.startswith(("PYTEST_", "CI"))}
    return {
        **kept,
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        PLUGINS: "pytest_gpuperf.plugin",
    }


class ForkedServer:
    """What ``fork_server`` uses of a ``subprocess.Popen``, of a fork of the zygote."""

    def __init__(
        self, zygote: Zygote, order: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        orders, self._orders = os.pipe()
        self._replies, replies = os.pipe()
        stderr = order["stderr"]
        fds = [orders, replies, stderr, *([m] if (m := order["progress"]) else [])]
        request = {**order, "env": dict(environment), "cwd": str(Path.cwd())}
        self._end = zygote.fork(request, fds)
        os.close(orders)
        os.close(replies)
        self.stdin: IO[bytes] = os.fdopen(self._orders, "wb", buffering=0)
        self.stdout: IO[bytes] = os.fdopen(self._replies, "rb", buffering=0)
        self.pid = int.from_bytes(self._end.recv(8), "big")
        # To kill process 0 would be to kill this one and all that it started.
        assert self.pid, (
            "what forks servers could not start: its error is in the output"
        )
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raise ``TimeoutExpired`` as ``Popen`` does."""
        if self.returncode is None:
            self._end.settimeout(timeout)
            try:
                self._end.recv(8)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired([], timeout or 0) from None
            self._end.close()
            self.returncode = 0
        return self.returncode

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def kill(self) -> None:
        """Kill the server, if it has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has, and nobody asked yet
                os.kill(self.pid, signal.SIGKILL)


_zygotes: dict[bool, Zygote] = {}


def _popen(command: Sequence[str], **given: Any) -> Any:
    order, environment = json.loads(command[-1]), given["env"]
    heavy = bool(order["preload"]) or WITH_TORCH in environment.get(PLUGINS, "")
    if heavy not in _zygotes:
        _zygotes[heavy] = Zygote(os.environ, heavy=heavy)
    if not _zygotes[heavy].suits(environment):
        return subprocess.Popen(command, **given)
    order["argv"] = [*map(str, command)]
    order["stderr"] = given["stderr"].fileno()
    return ForkedServer(_zygotes[heavy], order, environment)


_STAND_IN: Final = SimpleNamespace(
    Popen=_popen, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
)


@pytest.fixture
def warm_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the servers of runs in this process from one that has imported it all."""
    if sys.platform == "linux":
        monkeypatch.setattr(fork_server, "subprocess", _STAND_IN)


def warm_servers_of_forks(*, heavy: bool, **environment: str) -> None:
    """Do the same for the processes that this one will fork, each with *environment*."""
    if sys.platform == "linux":
        zygote = Zygote({**os.environ, **environment}, heavy=heavy)
        _zygotes[heavy] = zygote
        fork_server.subprocess = _STAND_IN  # type: ignore[assignment]
        # This process is a fork server itself, and ends what its jobs leave running.
        fork_server_process.end_orphans = lambda jobs, wait: end_orphans(
            {*jobs, zygote.pid}, wait
        )


# In the process that forks.


def main(fd: int, heavy: bool) -> None:  # noqa: FBT001, given on a command line
    """Import what servers do, then fork one an order until nobody is left to give one."""
    import importlib

    from pytest_gpuperf.worker.child import warm_pytest

    for name in (SCRIPTED_MODULE, *(fork_server.HEAVY_MODULES if heavy else ())):
        importlib.import_module(name)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    warm_pytest()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here waits for servers
    _serve(socket.socket(fileno=fd))


def _serve(orders: socket.socket) -> None:
    while True:
        head, fds, _, _ = socket.recv_fds(orders, 8, 1 + FDS)
        if not head:
            return
        size = int.from_bytes(head, "big")
        text = b""
        while len(text) < size:
            text += orders.recv(size - len(text))
        if os.fork() == 0:
            orders.close()
            _be_a_server(json.loads(text), fds)
        for fd in fds:
            os.close(fd)


def _be_a_server(order: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Become what the bootstrap of ``fork_server`` starts; ``fds[0]`` ends with it."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, fd in enumerate(fds[1:4]):
            os.dup2(fd, number)
            os.close(fd)  # the client would wait for the end of every copy
        for fd in (fds[0], *fds[4:]):
            os.set_inheritable(fd, False)  # noqa: FBT003, it takes no keyword
        os.write(fds[0], os.getpid().to_bytes(8, "big"))
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        # That of the test which started this zygote may be gone.
        tempfile.tempdir = None
        sys.orig_argv[:] = order["argv"]
        sys.path[:] = order["search_path"]
        from pytest_gpuperf.runner.fork_server_process import main as serve

        progress = fds[4] if order["progress"] else None
        serve({**order, "warm": None, "progress": progress})
        code = 0
    except BaseException:  # noqa: BLE001, its traceback is in the output
        traceback.print_exc()
    finally:
        os._exit(code)
