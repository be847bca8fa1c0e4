"""Numbers on the command line, refused in a sentence that names what was expected."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from math import nan
from typing import Final


def whole(least: int, expected: str, most: float = inf) -> Callable[[str], int]:
    """Return the ``type`` of an option: a whole number from *least* to *most*."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise _refused(expected, text)
        return int(text)

    return read


def real(accepts: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """Return the ``type`` of an option: a finite number that *accepts* takes."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = nan
        if not (accepts(number) and number < inf):
            raise _refused(expected, text)
        return number

    return read


def _refused(expected: str, text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")


COUNT: Final = whole(1, "a whole number from 1 on")
