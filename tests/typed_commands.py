"""What a fork server runs for a test: ``pytest`` or ``gpuperf``, as typed in a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from pytest_gpuperf.cli import main


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exit status and standard output of one command."""
    os.chdir(request["folder"])
    for name, value in request["environment"].items():
        os.environ[name] = value
    program, *arguments = request["command"]
    with redirect_stdout(StringIO()) as output:
        status = pytest.main(arguments) if program == "pytest" else _gpuperf(arguments)
    return {"status": int(status), "output": output.getvalue()}


def _gpuperf(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as end:  # argparse after --help
        return int(end.code or 0)
