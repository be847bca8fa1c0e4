"""What may leave this machine: no path on it, and with that no name of a user."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..model.finding import Finding
from ..model.finding import Location
from ..model.verdict import TestVerdict
from .findings import INSTALLED


HOME: Final = "~"


def shown_verdict(verdict: TestVerdict) -> TestVerdict:
    """Name files that do not lie in the project from their package on, or by their name."""
    return replace(
        verdict,
        findings=tuple(map(_shown_finding, verdict.findings)),
        snapshot=_shown_path(verdict.snapshot),
        trace=_shown_path(verdict.trace),
    )


def shown_headline(text: str, root: Path, home: Path) -> str:
    """Name paths in *text* from the project's *root* on, or from the user's *home*."""
    return text.replace(f"{root}{os.sep}", "").replace(str(home), HOME)


def _shown_finding(finding: Finding) -> Finding:
    return replace(
        finding,
        location=_shown_location(finding.location),
        innermost=_shown_location(finding.innermost),
        forward=_shown_location(finding.forward),
    )


def _shown_location(location: Location | None) -> Location | None:
    return location and replace(location, file=_shown_path(location.file))


def _shown_path(path: str) -> str:
    if not Path(path).is_absolute():
        return path
    _, installed, inside = path.rpartition(INSTALLED)
    return inside if installed else Path(path).name
