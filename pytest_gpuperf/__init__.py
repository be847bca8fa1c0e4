"""Performance budgets and baselines for PyTorch training steps, as a pytest plugin.

PYTEST_DONT_REWRITE: a measuring process has imported it before pytest could rewrite it,
which would be a warning otherwise, and an error where a project makes errors of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .devices.allow_sync import allow_sync
    from .marks import budget, ranks, tolerance
    from .worker.fixture import Compared, Gpuperf

__all__ = [
    "Compared",
    "Gpuperf",
    "allow_sync",
    "budget",
    "ranks",
    "tolerance",
]
__version__ = "0.2.0"


if not TYPE_CHECKING:  # or type checkers would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Import it when asked: every pytest run and every command imports this package."""
        if name in {"budget", "ranks", "tolerance"}:
            from . import marks

            return globals().setdefault(name, getattr(marks, name))
        if name in {"Compared", "Gpuperf"}:
            from .worker import fixture

            return getattr(fixture, name)
        if name == "allow_sync":
            from .devices.allow_sync import allow_sync

            # Kept as a global: the next access finds it without calling this function.
            return globals().setdefault(name, allow_sync)  # scripts enter it each step
        from .model.retired import refuse_retired

        refuse_retired(f"gpuperf.{name}")
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
