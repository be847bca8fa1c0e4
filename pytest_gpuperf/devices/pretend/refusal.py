"""What the pretend GPU cannot go on after."""

from __future__ import annotations

from unittest import SkipTest

from ...errors import StepError


class NeedsGpuError(StepError, SkipTest):
    """Code that only a GPU can run: pytest skips the test with this as the reason."""
