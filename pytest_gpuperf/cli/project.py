"""The settings of the project that a command is given in."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from typing import Final
from typing import Protocol

from ..errors import UsageError
from ..model.codec import decode
from ..model.project import ProjectSettings
from ..runs.fork_server import ForkServer
from ..runs.fork_server import Job


READ: Final = Job(entry="pytest_gpuperf.configured:read", request={})
SECONDS: Final = 120.0
"""Conftest files may import what is heavy."""


class Server(Protocol):
    """Does a job in a fresh process."""

    def run(self, job: Job, seconds: float) -> Any: ...


def ask_project() -> ProjectSettings:
    """Ask pytest in a process of its own; raises ``UsageError`` where it cannot say.

    Raises ``RunError`` where there is no process to be had.
    """
    with closing(ForkServer(())) as server:
        server.wait_until_ready()
        return settings_by(server)


def settings_by(server: Server) -> ProjectSettings:
    """Ask pytest in a process of *server*; raises as ``ask_project`` does."""
    answer = server.run(READ, SECONDS)
    if "error" in answer:
        msg = f"pytest cannot read the settings of this project: {answer['error']}"
        raise UsageError(msg)
    return decode(ProjectSettings, answer["settings"])
