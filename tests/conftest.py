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
