"""Runs single tests as plain pytest would, for a run that simulates a GPU.

The run starts a second pytest with its own arguments, which collects and then waits.
A test that fails on the simulated GPU is run there, and what that says is reported.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pytest

from .options import PLAIN_SOCKET


START_CODE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); import pytest; "
    "pytest.main(sys.argv[1:])"
)


class PlainServer:
    """The plugin of the second pytest: it runs what it is asked for, and no more."""

    def __init__(self, config: pytest.Config, number: int) -> None:
        self._config = config
        self._socket = socket.socket(fileno=number)

    # First, and with a result: nothing but what is asked for is run.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        with self._socket.makefile("rw", encoding="utf-8") as stream:
            for line in stream:
                stream.write(json.dumps(self._answer(json.loads(line), items)) + "\n")
                stream.flush()
        # The end of a session writes reports and caches, which are the other run's.
        os._exit(0)

    def _answer(self, question: Any, items: Mapping[str, pytest.Item]) -> Any:
        if isinstance(question, list):
            return [test for test in question if _is_absent(items.get(test))]
        item = items.get(question)
        if item is None:
            return []
        hook = self._config.hook
        runner: Any = self._config.pluginmanager.getplugin("runner")
        reports = runner.runtestprotocol(item, log=False, nextitem=None)
        return [
            hook.pytest_report_to_serializable(config=self._config, report=report)
            for report in reports
        ]


def serve(config: pytest.Config) -> None:
    """Make this process the one that is asked."""
    # Not for the processes that tests start.
    number = int(os.environ.pop(PLAIN_SOCKET))
    config.pluginmanager.register(PlainServer(config, number), "gpuperf-plain-server")


def _is_absent(item: pytest.Item | None) -> bool:
    """Whether a test is not there, or is skipped by its marks."""
    if item is None:
        return True
    if getattr(getattr(item, "obj", None), "__unittest_skip__", False):
        return True
    parent = getattr(item, "cls", None)
    if getattr(parent, "__unittest_skip__", False):
        return True
    with suppress(Exception):
        skipping: Any = item.config.pluginmanager.getplugin("skipping")
        return skipping.evaluate_skip_marks(item) is not None
    return False


def _with_tuples(data: dict[str, Any]) -> dict[str, Any]:
    """Make tuples again of what JSON has made lists of, and pytest asks for."""
    if isinstance(data["longrepr"], list):
        data["longrepr"] = tuple(data["longrepr"])
    data["location"] = tuple(data["location"])
    for name in ("sections", "user_properties"):
        data[name] = [tuple(pair) for pair in data[name]]
    return data


class PlainRunner:
    """Asks a second pytest, which is started when the first question comes."""

    def __init__(self, config: pytest.Config, path: Sequence[str]) -> None:
        self._config = config
        self._path = [*path]
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: Any = None

    def start(self) -> None:
        """Let the second pytest collect in the meantime."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603, this run's own command line
                [
                    *(sys.executable, "-c", START_CODE, json.dumps(self._path)),
                    *self._arguments(),
                ],
                cwd=self._config.invocation_params.dir,
                env={**os.environ, PLAIN_SOCKET: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._stream = ours.makefile("rw", encoding="utf-8")
        ours.close()

    def reports(self, test: str) -> Sequence[pytest.TestReport] | None:
        """Return the reports of *test* there: none if it is not there.

        ``None`` if the second pytest does not work.
        """
        answer = self._ask(test)
        if answer is None:
            return None
        hook = self._config.hook
        return [
            hook.pytest_report_from_serializable(
                config=self._config, data=_with_tuples(data)
            )
            for data in answer
        ]

    def absent(self, tests: Iterable[str]) -> Sequence[str]:
        """Return those of *tests* that are not there, or that are skipped by marks."""
        return self._ask([*tests]) or []

    def _ask(self, question: object) -> Any:
        self.start()
        with suppress(OSError, ValueError):
            self._stream.write(json.dumps(question) + "\n")
            self._stream.flush()
            return json.loads(self._stream.readline())
        return None

    def close(self) -> None:
        """End the second pytest."""
        if self._process is not None:
            with suppress(OSError):
                self._stream.close()
            self._process.kill()
            self._process.wait()

    def _arguments(self) -> list[str]:
        config = self._config
        given = [*config.invocation_params.args]
        if hasattr(config, "workerinput"):
            # A worker gets its options by value: the command line is its controller's.
            given = config.workerinput["mainargv"][1:]
        plugins = config.pluginmanager
        return [
            *(str(a) for a in given),
            *(["-n0"] if plugins.hasplugin("xdist") else []),
            *(["--no-cov"] if plugins.hasplugin("pytest_cov") else []),
        ]
