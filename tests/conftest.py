"""pytest runs inside a test, and no property is about the time it took to check."""

from __future__ import annotations

from hypothesis import settings


pytest_plugins = ["pytester"]

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
