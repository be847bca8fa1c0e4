"""Somebody who types commands in a project on the scripted device, each in a fresh process."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from builders import entries_in

from pytest_gpuperf.cli import COMMANDS
from pytest_gpuperf.runner.fork_server import ForkServer, Job


ROOT: Final = Path(__file__).parents[1]
GITHUB: Final = {"CI": "true", "GITHUB_ACTIONS": "true"}


@cache
def typing_server(
    *modules: str, warm: str | None = "typed_commands:warm"
) -> ForkServer:
    """Return what runs each command in a fresh process that has imported it all."""
    commands = [f"pytest_gpuperf.cli.{name.replace('-', '_')}" for name in COMMANDS]
    server = ForkServer(("typed_commands", *commands, *modules), warm=warm)
    atexit.register(server.close)
    server.wait_until_ready()
    return server


@dataclass(frozen=True, slots=True)
class Typed:
    """What a command came to."""

    status: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        return self.output + self.errors

    @property
    def words(self) -> str:
        """All that was printed, however it was wrapped."""
        return " ".join(self.text.split())

    def command(self, label: str, test: str = "") -> str:
        """The command behind *label* in a failure, the one that names *test*."""
        found = [
            line.split(label, 1)[1].strip()
            for line in self.text.splitlines()
            if line.startswith(f"  {label} ") and line.endswith(test)
        ]
        assert found, f"no {label!r} line for {test!r}:\n{self.text}"
        return found[0]


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder with a project, and a server that runs what is typed there.

    What is typed is typed in ``place``, from the folder on.
    """

    folder: Path
    server: ForkServer
    environment: Mapping[str, str] = field(default_factory=dict)
    place: str = "."

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def tests(self, *names: str) -> None:
        """Write a test file of these tests, each of a step that does nothing."""
        lines = [f"def {name}(gpuperf): gpuperf(int)" for name in names]
        self.write("test_it.py", "\n".join(["import pytest_gpuperf as g", *lines, ""]))

    def play(self, script: Mapping[str, object]) -> None:
        self.write("script.json", json.dumps({"*": {"step_ms": 10.0}, **script}))

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def entries(self, name: str = "baselines/scripted.json") -> dict[str, Any]:
        return entries_in(self.folder / name)

    def copy(self, to: Path) -> Desk:
        shutil.copytree(self.folder, to, dirs_exist_ok=True)
        return Desk(to, self.server, self.environment)

    def gate(self, *arguments: str, **environment: str) -> Typed:
        command = ("pytest", "--gpuperf", "--gpuperf-device=scripted", *arguments)
        return self.type(shlex.join(command), **environment)

    def store(self, *arguments: str) -> None:
        done = self.gate("--gpuperf-update=missing", *arguments)
        assert done.status == 0, done.text

    def type(self, command: str, **environment: str) -> Typed:
        """Run *command* as a shell splits it."""
        request = {
            "command": shlex.split(command),
            "folder": str(self.folder / self.place),
            "environment": {
                **dict.fromkeys(("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"), ""),
                "COLUMNS": "80",
                # Relative: another checkout of the project has a script of its own.
                "GPUPERF_SCRIPT": os.path.relpath(
                    self.folder / "script.json", self.folder / self.place
                ),
                "PYTEST_ADDOPTS": "",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTEST_PLUGINS": "pytest_gpuperf.plugin",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
                **self.environment,
                **environment,
            },
        }
        job = Job(entry="typed_commands:run", request=request)
        answer = self.server.run(job, seconds=300)
        return Typed(answer["status"], answer["output"], answer["errors"])
