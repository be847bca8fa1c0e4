"""Performance budgets and baselines for PyTorch training steps, as a pytest plugin."""

from __future__ import annotations

from .fixture import Gpuperf
from .marks import budget
from .marks import tolerance


__all__ = ["Gpuperf", "budget", "tolerance"]
__version__ = "0.1.0"
