"""Reads the settings of a project as pytest sees them, in a process of its own."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from typing import Final

import pytest

from ..errors import GpuperfError
from ..model.codec import encode
from ..model.results import ProjectSettings
from .options import environment
from .options import settings_from


ALLOWED: Final = {"GPUPERF_ALLOW_CI_UPDATE": "1"}
"""Reading the settings refreshes nothing, so CI may do it."""


def read(_request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the project in the working directory, or what is wrong."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m pytest` does
    sys.argv = ["pytest"]
    reader = Reader()
    # If pytest ends before its settings are known, what it printed is the error.
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        pytest.main([], plugins=[reader])
    if reader.settings is None:
        return {"error": reader.error or output.getvalue().strip()}
    return {"settings": encode(reader.settings)}


class Reader:
    """The plugin of a pytest that ends as soon as it knows its ini keys."""

    def __init__(self) -> None:
        self.settings: ProjectSettings | None = None
        self.error = ""

    # First, and with a result: pytest then neither collects nor runs anything.
    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> pytest.ExitCode:
        try:
            found = settings_from(config, {**environment(), **ALLOWED})
        except GpuperfError as error:
            self.error = str(error)
            return pytest.ExitCode.USAGE_ERROR
        except ValueError:  # it knows no such ini key
            self.error = "it does not load the plugin pytest_gpuperf.plugin"
            return pytest.ExitCode.USAGE_ERROR
        self.settings = ProjectSettings(
            device=found.device,
            baselines=str(found.baselines),
            artefacts=str(found.artefacts),
            history=found.history,
            lock_seconds=found.lock_seconds,
            tolerance=found.tolerance,
        )
        return pytest.ExitCode.OK
