"""The commit that a run measures, as far as anybody knows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import UsageError
from .repository import run_git


VARIABLES: Final = ("GITHUB_SHA", "CI_COMMIT_SHA")
"""Where GitHub and GitLab name the commit of a job."""


def commit_of(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return what git says is checked out in *folder*, else what the CI says."""
    try:
        found = run_git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
        commit = found.stdout.strip() if found.returncode == 0 else ""
    except UsageError:
        commit = ""
    named = (environ.get(name) for name in VARIABLES)
    return commit or next(filter(None, named), None)
