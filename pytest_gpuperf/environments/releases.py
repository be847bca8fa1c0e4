"""The releases of a package in a range: up to what became worse, or down to what was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from packaging.version import InvalidVersion
from packaging.version import Version

from ..errors import ErrorId
from ..errors import UsageError


RANGE: Final = re.compile(
    r"(?P<package>[\w.-]+)==(?P<good>[\w.]+?)\.\.(?P<bad>\w[\w.]*)"
)

FEWEST: Final = 2


def range_of(typed: str) -> tuple[str, Version, Version]:
    """Return the package and the first and last version that are *typed*.

    Raises ``UsageError`` if that is no range.
    """
    found = RANGE.fullmatch(typed)
    try:
        if found is not None:
            return found["package"], Version(found["good"]), Version(found["bad"])
    except InvalidVersion:
        pass
    msg = f"--package={typed}: expected PACKAGE==GOOD..BAD, as in torchmetrics==1.4.0..1.8.2"
    raise UsageError(msg, ErrorId.GP102)


def within(typed: str, listed: Sequence[str]) -> tuple[str, ...]:
    """Return those *listed* in the range that is *typed*, from its good end on.

    A newest version 4.57 means all that begin so. Raises ``UsageError`` if the range has
    fewer than two.
    """
    package, good, bad = range_of(typed)
    oldest, newest = sorted((good, bad))
    inside = (v for v in map(Version, listed) if oldest <= v and _is_until(v, newest))
    found = sorted(inside, reverse=bad < good)
    if len(found) < FEWEST:
        has = f"only {found[0]}" if found else "none"
        msg = (
            f"--package={typed}: of {len(listed)} releases of {package} for this Python "
            f"{has} is in this range; expected two or more"
        )
        raise UsageError(msg, ErrorId.GP710)
    return tuple(map(str, found))


def _is_until(version: Version, last: Version) -> bool:
    return version <= last or version.release[: len(last.release)] == last.release
