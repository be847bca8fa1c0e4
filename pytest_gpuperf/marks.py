"""``budget``, ``tolerance`` and ``ranks``: they return registered flat marks.

Every pytest run imports this module, so it imports what reads a mark where one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import pytest

from .errors import ErrorId, UsageError
from .model.retired import refuse_retired


if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .model.budget import Budget, Limits, Ranks, Tolerance, Tolerated

BUDGET_MARK: Final = "gpuperf_budget"
TOLERANCE_MARK: Final = "gpuperf_tolerance"
RANKS_MARK: Final = "gpuperf_ranks"
AUTO_MARK: Final = "gpuperf"

REGISTERED: Final = (
    f"{BUDGET_MARK}(..., on=None): ceilings of a step, from @gpuperf.budget(...)",
    f"{TOLERANCE_MARK}(..., detect=None): changes to ignore, from @gpuperf.tolerance(...)",
    f"{RANKS_MARK}(n, timeout_s=None): processes that execute the test together, from @gpuperf.ranks(...)",
    f"{AUTO_MARK}: added to each test that takes the gpuperf fixture",
)


def budget(**limits: Unpack[Limits]) -> pytest.MarkDecorator:
    """Limit what a step may cost: ``@gpuperf.budget(ms=12, mem_mb=900, syncs=0)``.

    ``ms`` and ``latency_ms`` are milliseconds per step, judged on CUDA only; ``mem_mb``
    and ``reserved_mb`` are MiB (2**20 bytes); ``syncs`` and ``launches`` are counts a
    step; ``speedup`` is the least that ``gpuperf.compare`` must find; the reference has
    the others. ``None`` lifts a ceiling inherited from a class or module. ``on`` (shell
    patterns against the device kind or the hardware's name) binds the whole mark to that
    hardware. Raises ``UsageError`` for an unknown keyword or a value that is no ceiling.
    """
    from .model.budget import parse_budget

    __tracebackhide__ = True
    return _checked(BUDGET_MARK, parse_budget, limits)


def tolerance(
    *, detect: str | None = None, **ratios: Unpack[Tolerated[str]]
) -> pytest.MarkDecorator:
    """Ignore changes against the baseline: ``@gpuperf.tolerance(ms="5% and 0.1 ms")``.

    A change never fails that is within the percentage or within the absolute floor,
    in the keyword's unit, if one is named; one of ``detect`` (default: the
    tolerance plus 2 %) or more never passes in silence. Raises ``UsageError`` for
    an unknown keyword or a text that is no percentage.
    """
    from .model.budget import parse_tolerance

    __tracebackhide__ = True
    keywords = {**ratios} if detect is None else {**ratios, "detect": detect}
    return _checked(TOLERANCE_MARK, parse_tolerance, keywords)


def ranks(n: int, *, timeout_s: float | None = None) -> pytest.MarkDecorator:
    """Execute the whole test in *n* processes at once: ``@gpuperf.ranks(2)``.

    Each is a rank of one process group of torch.distributed, which exists before the
    first fixture is set up: gloo on the cpu device, NCCL with a GPU a rank on cuda.
    They are killed if they take more than *timeout_s*, by default three times
    ``--gpuperf-seconds`` and half a minute. A plain run is one rank.
    Raises ``UsageError`` for a value that is none.
    """
    from .model.budget import parse_ranks

    __tracebackhide__ = True
    keywords: dict[str, object] = {"n": n}
    if timeout_s is not None:
        keywords["timeout_s"] = timeout_s
    return _checked(RANKS_MARK, parse_ranks, keywords)


def _checked(
    name: str,
    parse: Callable[[Mapping[str, object]], object],
    keywords: Mapping[str, object],
) -> pytest.MarkDecorator:
    """Return the mark; where its *keywords* are wrong, pytest shows its line, not ours."""
    __tracebackhide__ = True
    try:
        _refuse_empty(name.removeprefix("gpuperf_"), keywords)
        parse(keywords)
    except UsageError as error:
        raise error.with_traceback(None) from None
    mark: pytest.MarkDecorator = getattr(pytest.mark, name)
    return mark(**keywords)


def budgets_of(item: pytest.Item) -> tuple[Budget, ...]:
    """Return the budgets that apply to *item*, the highest precedence first."""
    from .model.budget import parse_budget

    return tuple(
        parse_budget(_keywords(mark)) for mark in _by_precedence(item, BUDGET_MARK)
    )


def tolerances_of(item: pytest.Item) -> tuple[Tolerance, ...]:
    """Return the tolerances that apply to *item*, the highest precedence first."""
    from .model.budget import parse_tolerance

    return tuple(
        parse_tolerance(_keywords(mark))
        for mark in _by_precedence(item, TOLERANCE_MARK)
    )


def ranks_of(item: pytest.Item) -> Ranks | None:
    """Return the ranks that *item* asks for, by the mark of the highest precedence."""
    from .model.budget import parse_ranks

    found = _by_precedence(item, RANKS_MARK)
    return parse_ranks(_keywords(found[0])) if found else None


def check(item: pytest.Item) -> None:
    """Raise ``UsageError`` for a wrong mark of *item*, however it was made."""
    # Parsers are imported only for tests that have such a mark: every pytest run checks
    # every collected test.
    names = {mark.name for node in item.listchain() for mark in node.own_markers}
    for name in names:
        refuse_retired(name.replace("gpuperf_", "gpuperf.", 1))
    if BUDGET_MARK in names:
        budgets_of(item)
    if TOLERANCE_MARK in names:
        tolerances_of(item)
    if RANKS_MARK in names:
        ranks_of(item)


def _keywords(mark: pytest.Mark) -> Mapping[str, object]:
    if mark.args:
        msg = f"{mark.name} takes keywords only, found {mark.args!r}"
        raise UsageError(msg, ErrorId.GP208)
    _refuse_empty(mark.name.removeprefix("gpuperf_"), mark.kwargs)
    return mark.kwargs


def _refuse_empty(mark: str, keywords: Mapping[str, object]) -> None:
    wanted = {
        "budget": "a limit, such as syncs=0",
        "tolerance": 'a change, such as ms="5%"',
    }
    if mark in wanted and not keywords:
        msg = f"gpuperf.{mark}() says nothing: expected {wanted[mark]}"
        raise UsageError(msg, ErrorId.GP203)


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
        # `own_markers` has base classes first. Here the mark of a subclass comes first,
        # as it overrides.
        classes = getattr(node.obj, "__mro__", ())
        return [mark for cls in classes for mark in _marks_in(cls)]
    return []


def _marks_in(cls: type) -> list[pytest.Mark]:
    stored = cls.__dict__.get("pytestmark", [])
    listed = stored if isinstance(stored, list) else [stored]
    bare = [m.mark if isinstance(m, pytest.MarkDecorator) else m for m in listed]
    return [mark for mark in bare if isinstance(mark, pytest.Mark)]
