"""The packages of one side, as they travel to its processes.

Each run of pytest imports it: nothing else is imported with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What comes before the user's packages on a side's path, and what is hidden there.

    ``hidden`` are names of modules, ``without`` of their packages. ``changes`` say for
    each package what it was and is.
    """

    path: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


NOTHING: Final = Overlay()
