"""What the keywords of a mark say: a budget or a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING
from typing import Final

from .errors import UsageError
from .model.budget import Budget
from .model.budget import Tolerance
from .model.gpu_metric import BUSY
from .model.loader_metric import LOADER_WAIT
from .model.metric import BUDGET_KEYWORDS
from .model.metric import SPEEDUP
from .model.metric import Metric
from .model.metric import Unit
from .model.metric import limited_by
from .model.rank_metric import RANK_SKEW
from .model.step_metric import FLOPS
from .model.step_metric import SLOPE


if TYPE_CHECKING:
    from .model.ranks import Ranks


UNIT: Final = {
    Unit.MS: " ms",
    Unit.BYTES: " MiB",
    Unit.COUNT: "",
    Unit.RATIO: "",
    Unit.PERCENT: " %",
}
"""How a floor of each unit is written after its number."""

ALMOST: Final = 0.75
"""Share of letters that two spellings of one keyword have in common."""

WHOLE: Final = 100
"""Percent of all there is."""

_TOLERATED: Final = tuple(
    name
    for name in BUDGET_KEYWORDS
    if name not in {m.budget for m in (SPEEDUP, RANK_SKEW, LOADER_WAIT, BUSY, SLOPE)}
)
"""A speedup, a skew, a share and a slope have no baseline that they could differ from."""


def parse_budget(keywords: Mapping[str, object]) -> Budget:
    """Return the budget that a mark's *keywords* say; raise ``UsageError`` if none."""
    limits = {name: value for name, value in keywords.items() if name != "on"}
    _refuse_unknown("budget", limits, (*BUDGET_KEYWORDS, "on"))
    return Budget(
        limits={name: _ceiling(name, value) for name, value in limits.items()},
        on=_patterns(keywords.get("on")),
    )


def parse_tolerance(keywords: Mapping[str, object]) -> Tolerance:
    """Return the tolerance that a mark's *keywords* say; raise ``UsageError`` if none."""
    texts = {name: value for name, value in keywords.items() if name != "detect"}
    _refuse_unknown("tolerance", texts, (*_TOLERATED, "detect"))
    bounds = {name: _bounds(name, value) for name, value in texts.items()}
    detect = keywords.get("detect")
    return Tolerance(
        ratios={name: ratio for name, (ratio, _) in bounds.items()},
        floors={n: floor for n, (_, floor) in bounds.items() if floor is not None},
        detect=None if detect is None else _detect(detect),
    )


def parse_ranks(keywords: Mapping[str, object]) -> Ranks:
    """Return the ranks that a mark's *keywords* say; raise ``UsageError`` if none."""
    from .model.ranks import Ranks

    _refuse_unknown("ranks", keywords, ("n", "timeout_s"))
    count, timeout_s = keywords.get("n"), keywords.get("timeout_s")
    if type(count) is not int or count < 1:
        msg = f"gpuperf.ranks({count!r}): expected a whole number of ranks, at least 1"
        raise UsageError(msg)
    if timeout_s is None:
        return Ranks(count=count)
    if type(timeout_s) not in {int, float} or not 0 < timeout_s < math.inf:  # type: ignore[operator]
        msg = (
            f"gpuperf.ranks(timeout_s={timeout_s!r}): expected a number of seconds "
            "above 0, or None for twice what --gpuperf-seconds allows"
        )
        raise UsageError(msg)
    return Ranks(count=count, timeout_s=float(timeout_s))  # type: ignore[arg-type]


def parse_project_tolerance(text: str) -> Tolerance:
    """Return what *text* says of several keywords: ``ms=5% and 0.1 ms, mem_mb=1%``.

    Raises ``UsageError`` where it says none.
    """
    pairs = (item.partition("=") for item in text.split(","))
    return parse_tolerance({n.strip(): value.strip() for n, _, value in pairs})


def _refuse_unknown(mark: str, keywords: Iterable[str], known: Sequence[str]) -> None:
    unknown = sorted(set(keywords) - set(known))
    if unknown:
        told = ", ".join(f"{name}{_meant(name, known)}" for name in unknown)
        msg = f"gpuperf.{mark}() does not know {told}; it knows {', '.join(known)}"
        raise UsageError(msg)


def _meant(name: str, known: Sequence[str]) -> str:
    """Ask for the keyword that is spelled almost like *name*, if there is one."""
    near = get_close_matches(name, known, n=1, cutoff=ALMOST)
    return f" (did you mean {near[0]}?)" if near else ""


def _ceiling(name: str, value: object) -> float | None:
    if value is None:
        return None
    metric = limited_by(name)[0]
    if isinstance(value, float) and value.is_integer() and metric == FLOPS:
        value = int(value)  # 2.5e9 is how such numbers are written
    kinds = int if metric.unit is Unit.COUNT else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return _refuse_ceiling(metric, name, value)
    if not math.isfinite(value) or value < 0 or (value == 0 and not metric.can_be_zero):
        return _refuse_ceiling(metric, name, value)
    if metric.unit is Unit.PERCENT and value > WHOLE:
        return _refuse_ceiling(metric, name, value)
    return float(value)


def _refuse_ceiling(metric: Metric, name: str, value: object) -> float | None:
    number = "a whole number" if metric.unit is Unit.COUNT else "a number"
    wanted = f"{number} {'of at least' if metric.can_be_zero else 'above'} 0"
    if metric.unit is Unit.PERCENT:
        wanted = f"{wanted}, at most {WHOLE}"
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


def _bounds(name: str, value: object) -> tuple[float, float | None]:
    """Return a ratio and, where one is named, an absolute floor: ``5% and 0.1 ms``."""
    relative, named, absolute = str(value).partition(" and ")
    ratio = _percentage(relative) if isinstance(value, str) else None
    floor = _amount(absolute, UNIT[limited_by(name)[0].unit]) if named else None
    if ratio is None or (named and floor is None):
        unit = UNIT[limited_by(name)[0].unit]
        msg = (
            f"gpuperf.tolerance({name}={value!r}): expected a percentage of at least "
            f'0 as text, such as "5%" or "5% and 1{unit}"'
        )
        raise UsageError(msg)
    return ratio, floor


def _detect(value: object) -> float:
    ratio = _percentage(value) if isinstance(value, str) else None
    if ratio is None:
        msg = (
            f"gpuperf.tolerance(detect={value!r}): expected a percentage of at least "
            '0 as text, such as "5%"'
        )
        raise UsageError(msg)
    return ratio


def _percentage(text: str) -> float | None:
    percent = _number(text[:-1]) if text.endswith("%") else None
    return None if percent is None else percent / 100


def _amount(text: str, unit: str) -> float | None:
    return _number(text[: len(text) - len(unit)]) if text.endswith(unit) else None


def _number(text: str) -> float | None:
    """Read a number of at least 0; ``None`` where it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None
