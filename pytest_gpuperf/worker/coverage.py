"""Coverage of measured tests: each runs once more, unmeasured, in a traced process.

A tracer slows the code that it sees, so no timed round is ever run under one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ..model.codec import decode
from ..runner.plan import RunRequest
from .child import CHILD_OPTIONS
from .child import enter
from .child import measuring_for
from .fixture import measurer_key
from .unmeasured import PlainRun


def cover(raw: Mapping[str, Any]) -> None:
    """Run the tests of one process and leave what they cover where pytest-cov looks."""
    # An optional dependency: it is there if pytest-cov is, and nothing else needs it.
    from coverage import Coverage

    request = decode(RunRequest, raw["request"])
    enter(request)
    measuring_for(request)  # opens the device: one that pretends does so from now on
    # A suffix of its own for each process: several write at once, and pytest-cov
    # combines all files that begin with the same name.
    watched = Coverage(**raw["coverage"], data_suffix=True)
    watched.start()
    try:
        arguments = [*CHILD_OPTIONS, *request.project.arguments, *request.tests]
        pytest.main(arguments, plugins=[_Plain(request.project.options)])
    finally:
        watched.stop()
        watched.save()


class _Plain:
    """The plugin of a process that measures nothing, whatever the project's ini says."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = options

    # First, so that our plugin finds a measurer and does not start a run of its own.
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[measurer_key] = PlainRun()
        for name, value in self._options.items():
            setattr(config.option, name, value)
