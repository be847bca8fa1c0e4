"""What the keywords of a mark say: a budget or a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping

from .errors import UsageError
from .model.budget import Budget
from .model.budget import Tolerance
from .model.metric import BUDGET_KEYWORDS
from .model.metric import Unit
from .model.metric import limited_by


def parse_budget(keywords: Mapping[str, object]) -> Budget:
    """Return the budget that a mark's *keywords* say; raise ``UsageError`` if none."""
    limits = {name: value for name, value in keywords.items() if name != "on"}
    _refuse_unknown("budget", limits, extra="on")
    return Budget(
        limits={name: _ceiling(name, value) for name, value in limits.items()},
        on=_patterns(keywords.get("on")),
    )


def parse_tolerance(keywords: Mapping[str, object]) -> Tolerance:
    """Return the tolerance that a mark's *keywords* say; raise ``UsageError`` if none."""
    ratios = {name: value for name, value in keywords.items() if name != "detect"}
    _refuse_unknown("tolerance", ratios, extra="detect")
    detect = keywords.get("detect")
    return Tolerance(
        ratios={name: _ratio(name, value) for name, value in ratios.items()},
        detect=None if detect is None else _ratio("detect", detect),
    )


def _refuse_unknown(mark: str, keywords: Iterable[str], extra: str) -> None:
    unknown = sorted(set(keywords) - set(BUDGET_KEYWORDS))
    if unknown:
        known = ", ".join((*BUDGET_KEYWORDS, extra))
        msg = f"gpuperf.{mark}() does not know {', '.join(unknown)}; it knows {known}"
        raise UsageError(msg)


def _ceiling(name: str, value: object) -> float | None:
    if value is None:
        return None
    whole = limited_by(name)[0].unit is Unit.COUNT
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return _refuse_ceiling(name, value, whole=whole)
    if not math.isfinite(value) or value < 0 or (value == 0 and not whole):
        return _refuse_ceiling(name, value, whole=whole)
    return float(value)


def _refuse_ceiling(name: str, value: object, *, whole: bool) -> float | None:
    wanted = "a whole number of at least 0" if whole else "a number above 0"
    msg = f"gpuperf.budget({name}={value!r}): expected {wanted}, or None to lift it"
    raise UsageError(msg)


def _patterns(on: object) -> tuple[str, ...] | None:
    if on is None:
        return None
    patterns = (on,) if isinstance(on, str) else on
    if not isinstance(patterns, (tuple, list)) or not patterns:
        patterns = (None,)
    if not all(isinstance(pattern, str) and pattern for pattern in patterns):
        msg = (
            f"gpuperf.budget(on={on!r}): expected a device kind or a pattern of the "
            'hardware\'s name, such as "cpu" or "*H200*", or a list of them'
        )
        raise UsageError(msg)
    return tuple(patterns)


def _ratio(name: str, value: object) -> float:
    percent = math.nan
    if isinstance(value, str) and value.endswith("%"):
        try:
            percent = float(value[:-1])
        except ValueError:
            percent = math.nan
    if not 0 <= percent < math.inf:
        msg = (
            f"gpuperf.tolerance({name}={value!r}): expected a percentage of at least "
            '0 as text, such as "5%"'
        )
        raise UsageError(msg)
    return percent / 100
