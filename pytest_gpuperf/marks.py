"""``budget`` and ``tolerance``: functions that return registered flat marks."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Final

import pytest

from .errors import UsageError
from .model.budget import Budget
from .model.budget import Tolerance
from .model.metric import BUDGET_KEYWORDS
from .model.metric import Unit
from .model.metric import limited_by


BUDGET_MARK: Final = "gpuperf_budget"
TOLERANCE_MARK: Final = "gpuperf_tolerance"
AUTO_MARK: Final = "gpuperf"

REGISTERED: Final = (
    f"{BUDGET_MARK}(..., on=None): ceilings of a step, from @gpuperf.budget(...)",
    f"{TOLERANCE_MARK}(..., detect=None): changes to ignore, from @gpuperf.tolerance(...)",
    f"{AUTO_MARK}: added to each test that takes the gpuperf fixture",
)


def budget(
    *, on: str | Sequence[str] | None = None, **limits: float | None
) -> pytest.MarkDecorator:
    """Limit what a step may cost: ``@gpuperf.budget(ms=12, mem_mb=900, syncs=0)``.

    ``ms`` and ``latency_ms`` are milliseconds a step, judged on CUDA only; ``mem_mb``
    and ``reserved_mb`` are MiB (2**20 bytes); ``syncs`` and ``alloc_retries`` are
    counts a step. ``None`` lifts a ceiling inherited from a class or module. ``on``
    (shell patterns against the device kind or the hardware's name) binds the whole
    mark to that hardware. Raises ``UsageError`` for an unknown keyword or a value
    that is no ceiling.
    """
    __tracebackhide__ = True
    keywords = {**limits} if on is None else {**limits, "on": on}
    _check(parse_budget, keywords)
    mark: pytest.MarkDecorator = getattr(pytest.mark, BUDGET_MARK)
    return mark(**keywords)


def tolerance(*, detect: str | None = None, **ratios: str) -> pytest.MarkDecorator:
    """Ignore relative changes against the baseline: ``@gpuperf.tolerance(ms="5%")``.

    A change up to the tolerance never fails; one of ``detect`` (default: the
    tolerance plus 2 %) or more never passes in silence. Raises ``UsageError`` for
    an unknown keyword or a text that is no percentage.
    """
    __tracebackhide__ = True
    keywords = {**ratios} if detect is None else {**ratios, "detect": detect}
    _check(parse_tolerance, keywords)
    mark: pytest.MarkDecorator = getattr(pytest.mark, TOLERANCE_MARK)
    return mark(**keywords)


def _check(
    parse: Callable[[Mapping[str, object]], object], keywords: Mapping[str, object]
) -> None:
    """Let pytest show the line of the mark and none of ours."""
    __tracebackhide__ = True
    try:
        parse(keywords)
    except UsageError as error:
        raise error.with_traceback(None) from None


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


def budgets_of(item: pytest.Item) -> tuple[Budget, ...]:
    """Budgets that hold for *item*, the highest precedence first."""
    return tuple(
        parse_budget(_keywords(mark)) for mark in _by_precedence(item, BUDGET_MARK)
    )


def tolerances_of(item: pytest.Item) -> tuple[Tolerance, ...]:
    """Tolerances that hold for *item*, the highest precedence first."""
    return tuple(
        parse_tolerance(_keywords(mark))
        for mark in _by_precedence(item, TOLERANCE_MARK)
    )


def check(item: pytest.Item) -> None:
    """Raise ``UsageError`` where a mark of *item*, however it was made, is none."""
    if item.get_closest_marker(BUDGET_MARK) is not None:
        budgets_of(item)
    if item.get_closest_marker(TOLERANCE_MARK) is not None:
        tolerances_of(item)


def _keywords(mark: pytest.Mark) -> Mapping[str, object]:
    if mark.args:
        msg = f"{mark.name} takes keywords only, found {mark.args!r}"
        raise UsageError(msg)
    return mark.kwargs


def _by_precedence(item: pytest.Item, name: str) -> list[pytest.Mark]:
    """Parameter, function, subclass, base class, module.

    ``iter_markers`` has the function before its parameter and base classes before
    subclasses.
    """
    marks: list[pytest.Mark] = []
    for node in reversed(item.listchain()):
        own = [mark for mark in node.own_markers if mark.name == name]
        first = [mark for mark in _first(node) if mark.name == name]
        marks += [*first, *(mark for mark in own if mark not in first)]
    return marks


def _first(node: object) -> list[pytest.Mark]:
    callspec = getattr(node, "callspec", None)
    if callspec is not None:
        return list(callspec.marks)
    if isinstance(node, pytest.Class):
        classes = getattr(node.obj, "__mro__", ())
        return [mark for cls in classes for mark in _marks_in(cls)]
    return []


def _marks_in(cls: type) -> list[pytest.Mark]:
    stored = cls.__dict__.get("pytestmark", [])
    listed = stored if isinstance(stored, list) else [stored]
    bare = [m.mark if isinstance(m, pytest.MarkDecorator) else m for m in listed]
    return [mark for mark in bare if isinstance(mark, pytest.Mark)]
