"""What came of edits, as a diff with a line for each of them, and for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from difflib import unified_diff
from pathlib import Path
from typing import Any, Protocol

from ..model.metrics import counted
from ..report.document import wrapped
from ..report.numbers import rounded
from .counts import Fall, Ran, Texts, fallen
from .edits import ByHand, Edit
from .trial import Proven, Tried


def diff_lines(texts: Texts, here: Path) -> Iterator[str]:
    """Yield the lines of one diff; paths are relative to *here*."""
    for file, both in sorted(texts.items()):
        name = relative(Path(file), here)
        before, after = (text.splitlines(keepends=True) for text in both)
        for line in unified_diff(before, after, f"a/{name}", f"b/{name}"):
            yield line.removesuffix("\n")
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


def relative(file: Path, here: Path) -> Path:
    """Return *file* as seen from *here*, if it is below."""
    return file.relative_to(here) if file.is_relative_to(here) else file


class Untried(Protocol):
    """What was not tried: what a person must repair, and how many edits are not safe."""

    by_hand: list[ByHand]
    untried: int


def proof_lines(
    found: Proven, before: Ran, others: Untried, here: Path, *, verbose: bool
) -> Iterator[str]:
    """Say what all edits do, then what each does, and name the others."""
    yield f"gpuperf: {_answer(found, before)}"
    for each in found.chosen:
        yield from _line(each.edit, _proof(each), here)
    for each in found.tried:
        if each.helps and each not in found.chosen:
            why = "the edits above exclude it" if each.is_safe else "--unsafe takes it"
            yield from _line(each.edit, f"not in the diff: {_proof(each)}; {why}", here)
    if found.interrupted:
        yield "interrupted: each edit was tried alone, and not all of them together"
    if others.untried:
        yield (
            f"{counted(others.untried, 'edit')} not tried: what is printed would change; "
            "--unsafe tries them"
        )
    unproven = [each for each in found.tried if not each.helps]
    if verbose:
        for each in unproven:
            why = f"not shown, {each.edit.rule}: {each.why}"
            yield from _line(each.edit, why, here)
        for place in others.by_hand:
            yield from _line(place, f"by hand, {place.rule}: {place.why}", here)
    elif unproven or others.by_hand:
        edits = f"{counted(len(unproven), 'edit')} without proof" * bool(unproven)
        places = counted(len(others.by_hand), "finding")
        left = [edits, f"{places} to change by hand" * bool(others.by_hand)]
        yield f"{', '.join(filter(None, left))}: -v says why"


def _answer(found: Proven, before: Ran) -> str:
    if not found.chosen:
        return "no edit was proven"
    edits = counted(len(found.chosen), "edit")
    old, new = before.audit, found.after.audit
    if found.interrupted or not (old and new):
        return f"{edits} proven"
    fall = next(fallen(old, new))
    if old.steps > 1 and old.per_step != new.per_step:  # what most steps have
        fall = Fall("syncs per step", old.per_step, new.per_step)
    return f"{_fall(fall)} with {edits}"


def _line(place: Edit | ByHand, text: str, here: Path) -> Iterator[str]:
    where = f"{relative(place.file, here)}:{place.line}"
    yield from wrapped(f"{where}: {text}", first="  ", rest=" " * 4)


def _proof(each: Tried) -> str:
    """Say what an edit lowers, and how it trains."""
    parts = [_fall(each.fall) if each.fall else ""]
    parts += [f"same training: {each.same.words}" if each.same else "", each.edit.says]
    return "; ".join(filter(None, parts))


def _fall(fall: Fall) -> str:
    return f"{fall.before:,.0f} -> {fall.after:,.0f} {fall.what}"


def fixes_document(
    found: Proven, by_hand: Sequence[ByHand], written: Sequence[Path]
) -> dict[str, Any]:
    """Return what ``json.dumps`` takes of it; files are absolute paths."""
    diff = diff_lines(found.texts, Path.cwd())
    return {
        "diff": "".join(f"{line}\n" for line in diff),
        "edits": [_edit(each, found) for each in found.tried],
        "by_hand": [asdict(h) | {"file": str(h.file)} for h in by_hand],
        "written": [*map(str, written)],
        "interrupted": found.interrupted,
    }


def _edit(each: Tried, found: Proven) -> dict[str, Any]:
    edit, fall, same = each.edit, each.fall, each.same
    return {
        "rule": edit.rule,
        "file": str(edit.file),
        "line": edit.line,
        "in_diff": each in found.chosen,
        "lowers": fall and fall.what,
        "before": fall and rounded(fall.before),
        "after": fall and rounded(fall.after),
        "same_training": same and same.words,
        "says": edit.says or None,
        "why_not": each.why or None,
    }
