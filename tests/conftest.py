"""pytest runs inside a test, and no property is about the time it took to check."""

from __future__ import annotations

import os
import tempfile

from hypothesis import settings


pytest_plugins = ["pytester"]

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="gpuperf-tests-")
"""Runs inside tests wait for each other's devices, and for nobody else's."""

for service in (
    *("GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"),
    *("GITLAB_CI", "CI_PROJECT_DIR"),
):
    os.environ.pop(
        service, None
    )  # the pages of these tests are not those of their runs


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their place: compressed ones hold the second they were made in."""
    return argname if isinstance(val, bytes) else None
