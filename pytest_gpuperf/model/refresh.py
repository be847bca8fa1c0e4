"""What a refresh may rewrite."""

from __future__ import annotations

from enum import Enum


class Refresh(Enum):
    """Which tests' baselines a refresh replaces."""

    MISSING = "missing"
    IMPROVED = "improved"
    DRIFTED = "drifted"
    ALL = "all"
