"""Python functions as the profiler names them: ``path(line of the def): function``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

from ..model.finding import Location


NAME: Final = re.compile(r"(?P<file>[^<].*)\((?P<line>\d+)\): (?P<function>.+)")

FOREIGN: Final = re.compile(r"(?:^|.*[/\\])(?:torch|pytest_gpuperf)[/\\].*")
"""Files of torch and of this package, whether or not ``sys.path`` was cut off."""

STDLIB: Final = re.compile(
    r".*[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages).*"
)


def blamed(names: Iterable[str]) -> Location | None:
    """The function of the user among *names*, innermost first.

    Built-in functions, modules, torch, this package and the standard library are
    passed over.
    """
    for name in names:
        found = NAME.fullmatch(name)
        if found is not None and is_blamable(found["file"]):
            return Location(
                file=found["file"],
                line=int(found["line"]),
                function=found["function"],
                exact=False,
            )
    return None


def is_blamable(file: str) -> bool:
    """Whether *file* is neither torch, nor this package, nor the standard library."""
    if FOREIGN.fullmatch(file) or STDLIB.fullmatch(file):
        return False
    top = re.split(r"[/\\]", file)[0].removesuffix(".py")
    return top not in sys.stdlib_module_names
