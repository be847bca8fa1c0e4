"""What a command line selects tests by."""

from __future__ import annotations

from typing import Final

import pytest


NARROWING: Final = {
    "keyword": "-k",
    "markexpr": "-m",
    "lf": "--lf",
    "stepwise": "--stepwise",
    "deselect": "--deselect",
    "ignore": "--ignore",
    "ignore_glob": "--ignore-glob",
}
"""Names of pytest's options with which it does not run every test, by attribute."""


def narrowed_by(config: pytest.Config) -> str:
    """Name the first option or argument that takes tests away; empty where none does."""
    for name, flag in NARROWING.items():
        if config.getoption(name, default=None):
            return flag
    named = [argument for argument in config.args if "::" in argument]
    return f"the argument {named[0]}" if named else ""
