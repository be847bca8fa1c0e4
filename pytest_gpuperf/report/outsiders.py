"""What may leave this machine: no path on it, with that no name of a user, no secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..model.finding import Finding
from ..model.finding import Location
from ..model.verdict import TestVerdict
from .findings import INSTALLED


HOME: Final = "~"

MASK: Final = "***"
"""What stands for a secret, as in the logs of GitHub."""

NAMES_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY")
"""Names of environment variables whose value is nobody's business."""

LEAST_SECRET: Final = 8
"""Characters of a value that nothing else is likely to hold."""


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of *environ* that a failure must not carry elsewhere."""
    return tuple(
        value
        for name, value in environ.items()
        if NAMES_SECRET.search(name.upper()) and len(value) >= LEAST_SECRET
    )


def shown_verdict(verdict: TestVerdict) -> TestVerdict:
    """Name files that do not lie in the project from their package on, or by their name."""
    return replace(
        verdict,
        findings=tuple(map(_shown_finding, verdict.findings)),
        snapshot=_shown_path(verdict.snapshot),
        trace=_shown_path(verdict.trace),
    )


def shown_headline(
    text: str, root: Path, home: Path, secrets: Iterable[str] = ()
) -> str:
    """Name paths in *text* from *root* on, or from *home*, and mask *secrets*."""
    for secret in secrets:
        text = text.replace(secret, MASK)
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
