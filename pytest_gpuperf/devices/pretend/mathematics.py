"""Functions of ``math``, which read a float past its methods, told of guesses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import Final

from .guesses import Guess
from .guesses import concluded
from .patches import Patch


NAMES: Final = (
    "exp",
    "expm1",
    "fabs",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "pow",
    "sqrt",
)
"""What is asked of a loss."""


def mathematics_patches() -> Iterator[Patch]:
    """Functions that take a guess for one."""
    for name in NAMES:
        yield Patch(math, name, _told(getattr(math, name)))


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def told(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return concluded(result) if Guess in map(type, args) else result

    return told
