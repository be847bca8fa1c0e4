"""What a fork server runs for a test: ``pytest`` or ``gpuperf``, as typed in a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest
from warm_servers import warm_servers_of_forks

from pytest_gpuperf.cli import main


def warm() -> None:
    """Have the runs that are typed start their own servers in milliseconds."""
    warm_servers_of_forks(heavy=False)


def warm_with_torch() -> None:
    """Do so for runs whose steps are of torch, on one thread."""
    warm_servers_of_forks(heavy=True, OMP_NUM_THREADS="1")


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exit status, the output and the errors of one command."""
    os.chdir(request["folder"])
    for name, value in request["environment"].items():
        os.environ[name] = value
    os.environ.pop("PYTEST_XDIST_WORKER", None)
    program, *arguments = request["command"]
    sys.argv[:] = sys.orig_argv[:] = request["command"]
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        status = pytest.main(arguments) if program == "pytest" else _gpuperf(arguments)
    written = {"output": output.getvalue(), "errors": errors.getvalue()}
    return {"status": int(status), **written}


def _gpuperf(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as end:  # argparse after --help
        return int(end.code or 0)
