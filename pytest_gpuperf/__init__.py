"""Performance budgets and baselines for PyTorch training steps, as a pytest plugin.

PYTEST_DONT_REWRITE: a measuring process has imported it before pytest could rewrite it,
which would be a warning otherwise, and an error where a project makes errors of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .marks import budget
from .marks import ranks
from .marks import tolerance


if TYPE_CHECKING:
    from .compared import Compared
    from .devices.allowances import allow_sync
    from .fixture import Gpuperf
    from .prospect import Prospect


__all__ = [
    "Compared",
    "Gpuperf",
    "Prospect",
    "allow_sync",
    "budget",
    "ranks",
    "tolerance",
]
__version__ = "0.1.0"


if not TYPE_CHECKING:  # or type checkers would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Import the rest when asked: every pytest run imports this package."""
        if name == "Gpuperf":
            from .fixture import Gpuperf

            return Gpuperf
        if name == "Compared":
            from .compared import Compared

            return Compared
        if name == "Prospect":
            from .prospect import Prospect

            return Prospect
        if name == "allow_sync":
            from .devices.allowances import allow_sync

            return globals().setdefault(name, allow_sync)  # scripts enter it each step
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
