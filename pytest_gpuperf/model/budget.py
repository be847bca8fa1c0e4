"""Budgets and tolerances as an author writes them in marks, and how those are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ..errors import ErrorId, UsageError
from .metrics import BUDGET_KEYWORDS, FLOPS, STEP_MS, Metric, Unit, limited_by
from .retired import refuse_retired


T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class Tolerated(TypedDict, Generic[T], total=False):
        """Keywords of metrics that a baseline has, for editors and type checkers."""

        ms: T
        latency_ms: T
        mem_mb: T
        reserved_mb: T
        growth_mb: T
        garbage_mb: T
        rank_mem_mb: T
        h2d_mb: T
        d2h_mb: T
        syncs: T
        pageable_copies: T
        launches: T
        flops: T
        graph_breaks: T
        recompiles: T
        collectives: T

    class Limits(Tolerated[float | None], total=False):
        """Keywords of ``gpuperf.budget``, which each call takes as well."""

        speedup: float | None
        skew_pct: float | None
        busy_pct: float | None
        loader_wait_pct: float | None
        on: str | Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Ceilings by budget keyword, in the keyword's unit (``ms``, MiB or a count).

    That of ``speedup`` is a floor. ``None`` lifts a ceiling inherited from an outer
    scope. ``on`` names the device kinds or hardware (shell patterns) the whole mark is
    meant for; ``None`` means each keyword's own rule.
    """

    limits: Mapping[str, float | None] = field(default_factory=dict)
    on: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Changes to ignore by budget keyword: those within either of two bounds.

    ``ratios`` are relative, ``floors`` absolute in the keyword's unit. ``detect`` is
    the slowdown, a ratio, that never passes in silence.
    """

    ratios: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    detect: float | None = None


# The keywords of marks, read.

ALMOST: Final = 0.75
"""Share of letters that two spellings of one keyword have in common."""

KEYWORDS_BY_WORD: Final = {
    "memory": "mem_mb",
    "time": "ms",
    "step_ms": "ms",
    "waits": "syncs",
    "copies": "pageable_copies",
}
"""Keywords by other words for them."""

USUAL: Final = ("ms", "latency_ms", "mem_mb", "syncs", "pageable_copies", "launches")
"""Keywords that most marks have."""

MOST_PERCENT: Final = 100
"""Percent of all there is."""

MOST_TOLERATED: Final = 10.0
"""Change, a ratio, above which a tolerance would only hide that nothing is judged."""

MOST_SHOWN: Final = 40
"""Letters of a value that a sentence repeats."""

_TOLERATED: Final = tuple(
    name for name in BUDGET_KEYWORDS if limited_by(name)[0].unit.is_tolerable
)


def parse_budget(keywords: Mapping[str, object]) -> Budget:
    """Return the budget that a mark's *keywords* say; raise ``UsageError`` if none."""
    limits = {name: value for name, value in keywords.items() if name != "on"}
    refuse_unknown("budget", limits, (*BUDGET_KEYWORDS, "on"))
    if keywords and not limits:
        msg = f"gpuperf.budget(on={keywords['on']!r}) limits nothing: expected a limit, such as syncs=0"
        raise UsageError(msg, ErrorId.GP203)
    return Budget(
        limits={name: _ceiling(name, value) for name, value in limits.items()},
        on=_patterns(keywords.get("on")),
    )


def parse_tolerance(keywords: Mapping[str, object]) -> Tolerance:
    """Return the tolerance that a mark's *keywords* say; raise ``UsageError`` if none."""
    texts = {name: value for name, value in keywords.items() if name != "detect"}
    refuse_unknown("tolerance", texts, (*_TOLERATED, "detect"))
    bounds = {name: _bounds(name, value) for name, value in texts.items()}
    detect = keywords.get("detect")
    return Tolerance(
        ratios={name: ratio for name, (ratio, _) in bounds.items()},
        floors={n: floor for n, (_, floor) in bounds.items() if floor is not None},
        detect=None if detect is None else _detect(detect),
    )


def parse_ranks(keywords: Mapping[str, object]) -> Ranks:
    """Return the ranks that a mark's *keywords* say; raise ``UsageError`` if none."""

    refuse_unknown("ranks", keywords, ("n", "timeout_s"))
    count, timeout_s = keywords.get("n"), keywords.get("timeout_s")
    if type(count) is not int or count < 1:
        msg = f"gpuperf.ranks({count!r}): expected a whole number of ranks, at least 1"
        raise UsageError(msg, ErrorId.GP207)
    if timeout_s is None:
        return Ranks(count=count)
    if type(timeout_s) not in {int, float} or not 0 < finite(timeout_s) < math.inf:
        msg = (
            f"gpuperf.ranks(timeout_s={shown(timeout_s)}): expected a number of seconds "
            "above 0, or None for three times --gpuperf-seconds and half a minute"
        )
        raise UsageError(msg, ErrorId.GP207)
    return Ranks(count=count, timeout_s=float(timeout_s))  # type: ignore[arg-type]


def parse_project_tolerance(text: str) -> Tolerance:
    """Return what *text* says of several keywords: ``ms=5% and 0.1 ms, mem_mb=1%``.

    Raises ``UsageError`` if it says none.
    """
    pairs = [item.partition("=") for item in text.split(",")]
    named = [name.strip() for name, _, _ in pairs]
    twice = [name for name in dict.fromkeys(named) if named.count(name) > 1]
    if twice:
        msg = f"{twice[0]} occurs {named.count(twice[0])} times, expected it once"
        raise UsageError(msg, ErrorId.GP101)
    refuse_unknown("tolerance", named, _TOLERATED)
    return parse_tolerance({n.strip(): value.strip() for n, _, value in pairs})


def finite(value: object) -> float:
    """Return the number *value* as a float; infinity for one that is too large for it."""
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def shown(value: object) -> str:
    """Write *value* as code does, cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # of more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def refuse_unknown(mark: str, keywords: Iterable[str], known: Sequence[str]) -> None:
    """Raise ``UsageError`` if *mark* has another of its *keywords* than those *known*."""
    unknown = sorted(set(keywords) - set(known))
    for name in unknown:
        refuse_retired(f"{name}=")
    if unknown:
        meant = {name: _meant(name, known) for name in unknown}
        names = ", ".join(
            f"{name} (did you mean {near}?)" if near else name
            for name, near in meant.items()
        )
        some_known = f"; it knows {_some_of(known)}" if None in meant.values() else ""
        msg = f"gpuperf.{mark}() does not know {names}{some_known}"
        raise UsageError(msg, ErrorId.GP201)


def _some_of(known: Sequence[str]) -> str:
    """Name those of the keywords that are mostly meant, and the page that has them all."""
    usual = [name for name in USUAL if name in known] or known
    rest = len(known) - len(usual)
    more = f" and {rest} more (docs/reference/marks.md)" if rest else ""
    return f"{', '.join(usual)}{more}"


def _meant(name: str, known: Sequence[str]) -> str | None:
    """Return the keyword that *name* begins, or that is spelled almost like it."""
    word = name.lower()
    begun = [keyword for keyword in known if keyword.startswith(f"{word}_")]
    near = get_close_matches(word, known, n=1, cutoff=ALMOST)
    found = (*near, *begun, *(k for k in (KEYWORDS_BY_WORD.get(word),) if k in known))
    return found[0] if found else None


def _ceiling(name: str, value: object) -> float | None:
    if value is None:
        return None
    metric = limited_by(name)[0]
    if isinstance(value, float) and value.is_integer() and metric == FLOPS:
        value = int(value)  # 2.5e9 is how such numbers are written
    kinds = int if metric.unit is Unit.COUNT else (int, float)
    # A bool is an int, and True would limit a count to 1.
    if isinstance(value, bool) or not isinstance(value, kinds):
        return _refuse_ceiling(metric, name, value)
    if (
        not math.isfinite(finite(value))
        or value < 0
        or (value == 0 and not metric.can_be_zero)
    ):
        return _refuse_ceiling(metric, name, value)
    if metric.unit is Unit.PERCENT and value > MOST_PERCENT:
        return _refuse_ceiling(metric, name, value)
    return finite(value)


def _refuse_ceiling(metric: Metric, name: str, value: object) -> float | None:
    number = "a whole number" if metric.unit is Unit.COUNT else "a number"
    wanted = f"{number} {'of at least' if metric.can_be_zero else 'above'} 0"
    if metric.unit is Unit.PERCENT:
        wanted = f"{wanted}, at most {MOST_PERCENT}"
    msg = (
        f"gpuperf.budget({name}={shown(value)}): expected {wanted}, or None to lift it"
    )
    raise UsageError(msg, ErrorId.GP202)


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
        raise UsageError(msg, ErrorId.GP204)
    return tuple(patterns)


def _bounds(name: str, value: object) -> tuple[float, float | None]:
    """Return a ratio and, if one is named, an absolute floor: ``5% and 0.1 ms``."""
    relative, named, absolute = str(value).partition(" and ")
    ratio = _percentage(relative) if isinstance(value, str) else None
    floor = _amount(absolute, limited_by(name)[0].unit.suffix) if named else None
    if ratio is None or (named and floor is None):
        unit = limited_by(name)[0].unit.suffix
        msg = (
            f"gpuperf.tolerance({name}={value!r}): expected a percentage of at least "
            f'0 as text, such as "5%" or "5% and 1{unit}"'
        )
        raise UsageError(msg, ErrorId.GP205)
    return _sane(name, ratio), floor


def _detect(value: object) -> float:
    ratio = _percentage(value) if isinstance(value, str) else None
    if ratio is None:
        msg = (
            f"gpuperf.tolerance(detect={value!r}): expected a percentage of at least "
            '0 as text, such as "5%"'
        )
        raise UsageError(msg, ErrorId.GP205)
    return _sane("detect", ratio)


def _sane(name: str, ratio: float) -> float:
    """Refuse a *ratio* with which nothing would ever be blamed."""
    if ratio > MOST_TOLERATED:
        msg = (
            f"gpuperf.tolerance({name}={_percent(ratio)!r}): expected at most "
            f"{_percent(MOST_TOLERATED)}"
        )
        raise UsageError(msg, ErrorId.GP205)
    return ratio


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.6g}%"


def _percentage(text: str) -> float | None:
    percent = _number(text[:-1]) if text.endswith("%") else None
    return None if percent is None else percent / 100


def _amount(text: str, unit: str) -> float | None:
    return _number(text[: len(text) - len(unit)]) if text.endswith(unit) else None


def _number(text: str) -> float | None:
    """Read a number of at least 0; ``None`` if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    # Also refuses NaN, with which every comparison is false.
    return number if 0 <= number < math.inf else None


def refuse_blind(layers: Sequence[Tolerance], source: str) -> None:
    """Raise ``UsageError`` if a slowdown is ignored that must be noticed.

    The first of *layers* that names a bound decides it. *source* names their place.
    """
    detect = next((la.detect for la in layers if la.detect is not None), None)
    ms = next((la.ratios["ms"] for la in layers if "ms" in la.ratios), None)
    ignored = STEP_MS.tolerance if ms is None else ms
    if detect is None or detect >= ignored:
        return
    default = " by default" if ms is None else ""
    msg = (
        f"{source}: detect={100 * detect:.6g}% is less than the ms={100 * ignored:.6g}% that "
        f"is tolerated{default}, and a slowdown between them would pass in silence; make "
        "detect as large, or ms smaller"
    )
    raise UsageError(msg, ErrorId.GP206)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """So many processes execute a whole test together, in at most ``timeout_s``.

    Without a timeout the cap on what measuring may cost decides.
    """

    count: int
    timeout_s: float | None = None
