"""Joins the results of several runs as if one run had measured everything.

Nothing is green by being absent: a run that did not finish, a test that no run measured
and a run that failed elsewhere all fail the whole.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.environment import Hardware
from ..model.metric import MetricKind
from ..model.metrics import METRICS
from ..model.results import FoundRecord
from ..model.results import Merged
from ..model.results import Record
from ..model.results import Results
from ..model.results import Shard


EXIT_FAILED: Final = 1
NO_TESTS: Final = 5
MERGED_EXITS: Final = frozenset({0, EXIT_FAILED, NO_TESTS})
"""Exit statuses of pytest after which every selected test has its result."""


def merge(
    shards: Sequence[Shard],
    *,
    expected: int | None = None,
    allow_missing: bool = False,
) -> Merged:
    """Join *shards*, of which there should be as many as *expected*.

    Raises ``UsageError`` if they are of different commits or versions, and where two
    disagree about a test on the same hardware.
    """
    _refuse_strangers(shards)
    tests = _tests(shards)
    measured = {test for found in tests.values() for test in found}
    collected = dict.fromkeys(t for s in shards for t in s.results.head.collected)
    missing = tuple(test for test in collected if test not in measured)
    objections = (*_too_few(shards, expected), *_objections(shards))
    fails = bool(objections) or (bool(missing) and not allow_missing)
    return Merged(
        shards=len(shards),
        exit_status=EXIT_FAILED if fails else _exit_status(shards),
        tests=tests,
        missing=missing,
        lost=tuple(t for s in shards for t in s.results.head.unreported),
        objections=objections,
        notes=tuple(dict.fromkeys(n for s in shards for n in s.results.head.notes)),
        pending=tuple(_pending(shards)),
    )


def _refuse_strangers(shards: Sequence[Shard]) -> None:
    first = shards[0]
    known = next((s for s in shards if s.results.head.commit), first)
    for shard in shards:
        head, version = shard.results.head, first.results.head.version
        if head.version != version:
            msg = (
                f"{first.source} was written by pytest-gpuperf {version}, {shard.source} "
                f"by {head.version}: install the same version for every shard"
            )
            raise UsageError(msg, ErrorId.GP516)
        commit = known.results.head.commit
        if head.commit and head.commit != commit:
            msg = (
                f"{known.source} is of commit {commit}, {shard.source} of {head.commit}: "
                "run every shard on the same commit"
            )
            raise UsageError(msg, ErrorId.GP516)


def _tests(shards: Sequence[Shard]) -> dict[str, dict[str, FoundRecord]]:
    joined: dict[str, dict[str, FoundRecord]] = {}
    for shard in shards:
        head, tests = shard.results.head, shard.results.tests
        if head.hardware is None:
            continue
        taken = joined.setdefault(head.hardware.key, {})
        for test in taken.keys() & tests.keys():
            _refuse_disagreement(
                f"{test} on {head.hardware.key}",
                taken[test],
                FoundRecord(tests[test], shard.source),
            )
        for test, record in tests.items():
            taken.setdefault(test, FoundRecord(record, shard.source))
    return joined


def _refuse_disagreement(what: str, first: FoundRecord, second: FoundRecord) -> None:
    statements = zip_longest(_statements(first.record), _statements(second.record))
    for one, other in statements:
        if one is None or other is None or not _agree(one, other):
            msg = (
                f"{what}: {first.source} says {_said(one)}, {second.source} says "
                f"{_said(other)}; give each test to one shard, or find out why they differ"
            )
            raise UsageError(msg, ErrorId.GP517)


Statement = tuple[str, str, float | None]
"""A call and its metric, the outcome, and its value if the metric is exact."""


def _statements(record: Record) -> Iterator[Statement]:
    """Yield what another shard must report too; not times, which never repeat."""
    yield "", record.ending.value, None
    for call in record.verdicts:
        for verdict in call["verdicts"]:
            yield _statement(verdict)


def _statement(verdict: Mapping[str, Any]) -> Statement:
    name, value = str(verdict.get("metric")), verdict.get("now")
    metric = METRICS.get(name)
    is_exact = metric is not None and metric.kind is MetricKind.EXACT
    return name, verdict["outcome"], value if is_exact else None


def _agree(one: Statement, other: Statement) -> bool:
    if one[:2] != other[:2] or (one[2] is None) is not (other[2] is None):
        return False
    if one[2] is None or other[2] is None:
        return True
    metric = METRICS[one[0]]
    # The same rule as for a baseline: machines of one kind may differ by it and be
    # right.
    allowed = max(metric.tolerance * min(one[2], other[2]), metric.floor)
    return abs(one[2] - other[2]) <= allowed


def _said(statement: Statement | None) -> str:
    if statement is None:
        return "nothing more"
    metric, outcome, value = statement
    number = "" if value is None else f" ({value:g})"
    return f"{metric} {outcome}{number}".strip()


def _too_few(shards: Collection[Shard], expected: int | None) -> Iterator[str]:
    if expected is not None and len(shards) != expected:
        yield f"found {len(shards)} of {expected} shards"


def _objections(shards: Sequence[Shard]) -> Iterator[str]:
    for shard in shards:
        status = shard.results.head.exit_status
        if status is None:
            yield f"{shard.source}: the run did not finish, its process died"
        elif status not in MERGED_EXITS:
            yield f"{shard.source}: the run did not finish, pytest exited with {status}"
        elif status == EXIT_FAILED and not _explains_failure(shard.results):
            yield (
                f"{shard.source}: pytest exited with 1, and none of its measured tests "
                "failed: see its own report"
            )


def _explains_failure(results: Results) -> bool:
    records = results.tests.values()
    return bool(results.head.unreported) or any(r.ending.fails for r in records)


def _exit_status(shards: Sequence[Shard]) -> int:
    """Return what pytest would have, had it run all of them."""
    statuses = {shard.results.head.exit_status for shard in shards}
    return next(status for status in (EXIT_FAILED, 0, NO_TESTS) if status in statuses)


def _pending(shards: Sequence[Shard]) -> Iterator[Baselines]:
    """Join what can be accepted, by hardware; the first shard with a test wins.

    What an older run left in the same file is not taken: its test has no verdict.
    """
    joined: dict[str, tuple[Hardware, dict[str, Entry]]] = {}
    for shard in shards:
        if shard.pending is None:
            continue
        records = shard.results.tests.values()
        judged = {call.get("test") for record in records for call in record.verdicts}
        _, entries = joined.setdefault(
            shard.pending.hardware.key, (shard.pending.hardware, {})
        )
        for test, entry in shard.pending.entries.items():
            if test in judged:
                entries.setdefault(test, entry)
    for hardware, entries in joined.values():
        yield Baselines(hardware=hardware, entries=entries)
