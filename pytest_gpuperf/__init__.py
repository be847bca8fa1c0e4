"""Performance budgets and baselines for PyTorch training steps, as a pytest plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .marks import budget
from .marks import tolerance


if TYPE_CHECKING:
    from .fixture import Gpuperf


__all__ = ["Gpuperf", "budget", "tolerance"]
__version__ = "0.1.0"


if not TYPE_CHECKING:  # or type checkers would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Import ``Gpuperf`` when asked: every pytest run imports this package."""
        if name == "Gpuperf":
            from .fixture import Gpuperf

            return Gpuperf
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
