"""Floating point operations of a step, by torch's own formulas.

They are those of ``torch.utils.flop_counter``, which counts products, convolutions and
attention, a multiplication and an addition as two, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.flop_counter import flop_registry


Formula = Callable[..., int]


def formula_of(func: Any) -> Formula | None:
    """Formula of an operation's overload; ``None`` for what torch does not count."""
    formula: Formula | None = flop_registry.get(func.overloadpacket)
    return formula
