"""Blames operations: which lines of a step run others than before, or more of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..model.codec import encode_briefly
from ..model.finding import CALLED, LineChange, LineWork, Location


Digest = Sequence[LineWork]
"""What the lines of a step run."""

DIGEST_BYTES: Final = 18_000
"""Bytes of a digest as JSON, of the 20 KiB that its file may have."""

STORED_CALL: Final = [-1, 0]
"""A call that is gone, and of which nobody stored how much it did."""

LEFT_OUT: Final = "left out"
"""Operation of the line that sums up those that a digest has no room for."""

Key = tuple[str, str, str, str, str]
"""What a line is known by wherever it moves to: all but its number."""

Lines = Mapping[Key, LineWork]

Moved = dict[tuple[Key, str], list[int]]
"""By how much count and bytes differ, of each line and operation."""


# A digest that is small enough to be kept.


def fitted(lines: Iterable[LineWork]) -> tuple[LineWork, ...]:
    """Return *lines*, those that run most first, and no more than there is room for.

    Equal layers become one first, then what runs least is left out.
    """
    found = _merged(lines)
    if sum(map(_size, found)) > DIGEST_BYTES:
        found = _merged(map(_any_layer, found))
    kept, room = 0, DIGEST_BYTES
    for line in found:
        room -= _size(line)
        kept += room >= 0
    rest = found[kept:]
    if not rest:
        return found
    tally = sum(line.count for line in rest), sum(map(_bytes_of, rest))
    return (*found[:kept], LineWork(ops={LEFT_OUT: tally}))


def _merged(lines: Iterable[LineWork]) -> tuple[LineWork, ...]:
    """Sum up what the same line runs in the same module, most first."""
    by_key: dict[Key, LineWork] = {}
    for line in lines:
        key = _key_of(line)
        by_key[key] = _added(by_key[key], line) if key in by_key else line
    found = sorted(by_key.items(), key=lambda item: (-item[1].count, item[0]))
    return tuple(replace(line, ops=dict(sorted(line.ops.items()))) for _, line in found)


def _added(one: LineWork, other: LineWork) -> LineWork:
    ops = dict(one.ops)
    for op, (count, nbytes) in other.ops.items():
        known = ops.get(op, (0, 0))
        ops[op] = (known[0] + count, known[1] + nbytes)
    return replace(one, ops=ops)


def _any_layer(line: LineWork) -> LineWork:
    return replace(line, module=_without_numbers(line.module))


def _without_numbers(module: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)", ".*", module)


def _size(line: LineWork) -> int:
    return len(json.dumps(encode_briefly(line))) + len(",\n  ")


def _bytes_of(line: LineWork) -> int:
    return sum(nbytes for _, nbytes in line.ops.values())


def _key_of(line: LineWork) -> Key:
    at, inner = line.location, line.innermost
    return (
        line.module,
        at.file if at else "",
        at.function if at else "",
        f"{inner.file} {inner.function}" if inner else "",
        line.source,
    )


# What differs.


def blamed(before: Sequence[Digest], after: Sequence[Digest]) -> tuple[LineChange, ...]:
    """Say which lines of the newest step of *after* run another number of operations.

    New lines come first, then those that run most more. What differs between the steps of
    a side, or is the same as in one of them, is blamed on nothing. Without a digest of
    both sides nothing is known.
    """
    if not before or not after or not before[-1] or not after[-1]:
        return ()
    found = _changes(before[-1], after[-1])
    others = [(b, after[-1]) for b in before[:-1] if b]
    others += [(before[-1], a) for a in after[:-1] if a]
    for one in others if found else ():
        known = {_place_of(change): change.ops.keys() for change in _changes(*one)}
        found = [c for c in found if c.ops.keys() <= known.get(_place_of(c), set())]
    return tuple(found)


def _place_of(change: LineChange) -> tuple[str, str, str, bool]:
    function = change.location.function if change.location else ""
    return change.module, function, change.source, CALLED in change.ops


def _changes(before: Digest, after: Digest) -> list[LineChange]:
    both = before, after
    # Where one side had no room for the numbers of layers, the other's say nothing.
    if any(".*" in line.module for line in (*before, *after)):
        both = _merged(map(_any_layer, before)), _merged(map(_any_layer, after))
    old, new = ({_key_of(line): line for line in side} for side in both)
    moved: Moved = {}
    _count(moved, old, new, -1)
    _count(moved, new, old, 1)
    _cancel(moved, old, exact=False)
    _cancel(moved, old, exact=True)
    return sorted(_layers_joined([*_described(old, new, moved)]), key=_rank)


def _count(moved: Moved, side: Lines, other: Lines, sign: int) -> None:
    """Add what the lines of a *side* run to what *moved*, or take it away."""
    # Of a side that was cut, a line that is missing may have run as little as this.
    kept = [w.count for w in other.values() if not {LEFT_OUT, CALLED} & w.ops.keys()]
    is_cut = any(LEFT_OUT in line.ops for line in other.values())
    unknown = min(kept, default=0) if is_cut else 0
    for key, line in side.items():
        if LEFT_OUT in line.ops or (key not in other and line.count <= unknown):
            continue
        for op, (count, nbytes) in line.ops.items():
            tally = moved.setdefault((key, op), [0, 0])
            tally[0] += sign * count
            tally[1] += sign * nbytes


def _cancel(moved: Moved, old: Lines, *, exact: bool) -> None:
    """Let what one line runs more, and another less, be nothing: code moves.

    That is within a module, as a line is written in other words or taken apart; between
    modules, which may be renamed, only if count and bytes are the same: ``exact``.
    """
    sides: dict[tuple[str, str], tuple[list[Key], list[Key]]] = {}
    for (key, op), (count, _) in moved.items():
        group = "" if exact else key[0], op
        sides.setdefault(group, ([], []))[count < 0].append(key)
    for (_, op), (more, less) in sides.items():
        for key in sorted(more, key=lambda k: (k in old, k)):
            for other in sorted(less, key=lambda k: (k[1:3] != key[1:3], k)):
                if op == CALLED and moved[other, op] == STORED_CALL:
                    moved[key, op][:] = moved[other, op][:] = 0, 0
                _take(moved[key, op], moved[other, op], exact=exact)


def _take(more: list[int], less: list[int], *, exact: bool) -> None:
    count = min(more[0], -less[0])
    if count <= 0 or (exact and more != [-less[0], -less[1]]):
        return
    # What the results have grown by stays with the line that is there now.
    nbytes = less[1] * count // -less[0]
    more[:] = more[0] - count, more[1] + nbytes
    less[:] = less[0] + count, less[1] - nbytes


def _described(old: Lines, new: Lines, moved: Moved) -> Iterator[LineChange]:
    runs_more = any(n > 0 for (_, op), (n, _) in moved.items() if op != CALLED)
    by_line: dict[Key, dict[str, list[int]]] = defaultdict(dict)
    for (key, op), tally in sorted(moved.items()):
        if any(tally):
            by_line[key][op] = tally
    for key, ops in by_line.items():
        is_new, line = key not in old, new.get(key) or old[key]
        # Whoever calls what runs more runs more as well: only a new call explains it.
        if CALLED in ops and not (is_new and runs_more and ops[CALLED][0] > 0):
            continue
        now = new[key].ops if key in new else {}
        after = {op: now.get(op, (0, 0))[0] for op in ops}
        yield LineChange(
            module=line.module,
            location=line.location,
            innermost=line.innermost,
            source=line.source,
            is_new=is_new,
            ops={op: (after[op] - count, after[op]) for op, (count, _) in ops.items()},
            added_bytes=sum(nbytes for _, nbytes in ops.values()),
        )


def _layers_joined(changes: Sequence[LineChange]) -> Iterator[LineChange]:
    """Make one of a line that changed in several numbered modules."""
    found: dict[tuple[str, Location | None, str], list[LineChange]] = defaultdict(list)
    for change in changes:
        name = _without_numbers(change.module)
        found[name, change.location, change.source].append(change)
    for (name, _, _), same in found.items():
        ops: dict[str, tuple[int, int]] = {}
        for before, after, op in ((*n, op) for c in same for op, n in c.ops.items()):
            known = ops.get(op, (0, 0))
            ops[op] = (known[0] + before, known[1] + after)
        nbytes = sum(change.added_bytes for change in same)
        module = name if len(same) > 1 else same[0].module
        yield replace(same[0], module=module, ops=ops, added_bytes=nbytes)


def _rank(change: LineChange) -> tuple[bool, int, int, str]:
    where = f"{change.module} {change.location} {change.source}"
    return not change.is_new, -change.added, -abs(change.added_bytes), where
