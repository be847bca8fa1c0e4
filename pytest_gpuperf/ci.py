"""What a job of continuous integration may not do unless it says that it means to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .errors import UsageError


ALLOWANCE: Final = "GPUPERF_ALLOW_CI_UPDATE"
"""Variable with which a job may move the baselines."""


def refuse_in_ci(asked: str, verb: str, environ: Mapping[str, str]) -> None:
    """Raise ``UsageError`` where *asked* would let a gate move its own baseline.

    *verb* is what to do on a developer's machine instead.
    """
    if environ.get("CI") and not environ.get(ALLOWANCE):
        msg = (
            f"{asked} was asked for, but CI is set and a gate must not move its own "
            f"baseline: {verb} on a developer's machine, or set {ALLOWANCE}=1 in the "
            "job that is meant to refresh"
        )
        raise UsageError(msg)
