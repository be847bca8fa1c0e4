"""Floating point operations of a step, by torch's own formulas.

They are those of ``torch.utils.flop_counter``, which counts products, convolutions and
attention, a multiplication and an addition as two, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

import torch
from torch.utils.flop_counter import flop_registry


MOST_KNOWN: Final = 10_000


class Flops:
    """Counts one operation's calls; what it takes depends on shapes, which come again.

    A formula is as dear as the product of small matrices that it is about.
    """

    __slots__ = ("_formula", "_known")

    def __init__(self, formula: Callable[..., int]) -> None:
        self._formula = formula
        self._known: dict[object, int] = {}

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
        """Floating point operations of the call that gave *result*."""
        key = (_form(args), _form([*kwargs.items()]), _form([result]))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._formula(*args, **kwargs, out_val=result)
            self._known[key] = known
        return known


def flops_of(func: Any) -> Flops | None:
    """What counts an operation's overload; ``None`` for what torch does not count."""
    formula = flop_registry.get(func.overloadpacket)
    return None if formula is None else Flops(formula)


def _form(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        value.shape
        if isinstance(value, torch.Tensor)
        else _form(value)
        if isinstance(value, (list, tuple))
        else value
        for value in values
    )
