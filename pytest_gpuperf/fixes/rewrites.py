"""Which edits end what an audit found: rules by the name of their remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

import libcst as cst

from ..model.finding import Finding
from ..report.line_syntax import with_context
from ..report.remedies import remedy_of
from .calls import (
    asserted_on_gpu,
    checked_norm,
    counted_in_fixed_size,
    counted_on_gpu,
    fused_optimizer,
    known_size,
    numbers_of_loop,
    printed_sometimes,
    reduced_with_mask,
    selected_on_gpu,
    without_call,
)
from .code import Changes, Code, UnclearError, clear, known
from .copies import both_ends, index_on_gpu, index_once, made_on_gpu, made_once, pinned
from .edits import ByHand, Edit
from .reads import list_in_loop, number_in_loop


Rule = Callable[[Code, cst.CSTNode], Iterator[Changes]]

_NUMBER: Final[tuple[Rule, ...]] = (number_in_loop, list_in_loop)

REWRITES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "read-number": _NUMBER,
    "kept-number": _NUMBER,
    "number-in-formula": _NUMBER,
    "printed-tensor": (*_NUMBER, printed_sometimes),
    "sync": _NUMBER,
    "condition": (*_NUMBER, asserted_on_gpu),
    "synchronize": (without_call,),
    "empty-cache": (without_call,),
    "grad-scaler": (fused_optimizer,),
    "finite-norm": (checked_norm,),
    "repeat-interleave": (known_size,),
    "unique": (counted_in_fixed_size,),
    "mask": (reduced_with_mask,),
    "positions": (counted_on_gpu,),
    "made-on-cpu": (made_on_gpu, pinned),
    "constant": (made_once, made_on_gpu, pinned),
    "tensor-from-cpu": (made_once, pinned),
    "pageable-batch": (both_ends, pinned),
    "unpinned-batch": (both_ends,),
    "pinned-batch": (both_ends,),
    "copy-to-gpu": (made_once, pinned, both_ends),
    "index": (numbers_of_loop, selected_on_gpu),
    "cpu-index": (index_once, index_on_gpu),
}
"""By the rule of a remedy, what is tried in turn."""


def edits_of(
    finding: Finding,
    source: str,
    file: Path,
    *,
    also: Sequence[Finding] = (),  # noqa: ARG001, for rules of two ends
) -> Iterator[Edit | ByHand]:
    """Yield the edits of the text *source* of a *file* that may end *finding*, the best first.

    Without one, yield why: what is not understood is left to its author.
    """
    line = finding.location.line if finding.location else 0
    remedy = remedy_of(_shown(finding, source, line))
    rule = remedy.rule if remedy else ""
    reasons: list[str] = []
    count = 0
    edit = Edit(rule=rule, file=file, line=line, before=source, after=source)
    for after, says in _texts(finding, source, file, rule, reasons):
        count += after != source
        yield from [replace(edit, after=after, says=says)] if after != source else []
    if not count:
        why = reasons[0] if reasons else "no rewrite fits what becomes of the value"
        yield ByHand(rule=rule, file=file, line=line, why=why)


def _shown(finding: Finding, source: str, line: int) -> Finding:
    """Return *finding* with the text of its line, as remedies are chosen by."""
    text = "".join(source.splitlines()[line - 1 : line]).strip()
    return with_context(replace(finding, source=finding.source or text))


def _texts(
    finding: Finding, source: str, file: Path, rule: str, reasons: list[str]
) -> Iterator[tuple[str, str]]:
    try:
        place = known(finding.location, "its line is not known")
        _clear_of_others(source, file)
        code = Code(source)
        statement = code.statement_at(place.line)
        _clear_of_decorators(code, statement)
    except (UnclearError, cst.ParserSyntaxError) as error:
        reasons.append(str(error))
        return
    for rewrite in REWRITES.get(rule, ()):
        try:
            yield from ((c.text(), c.says) for c in rewrite(code, statement))
        except UnclearError as error:  # noqa: PERF203, each rule has its own reason
            reasons.append(str(error))


_GENERATED: Final = re.compile(r"(?i)^#.*(?:\bgenerated\b|do not edit)", re.MULTILINE)
_THREADS: Final = re.compile(r"(?m)^\s*(?:import|from) (?:threading|concurrent)\b")


def _clear_of_others(source: str, file: Path) -> None:
    """Be sure that the file is its author's, and that one thread runs it."""
    clear("-packages" not in str(file), "the file is a library's")
    head = "".join(islice(source.splitlines(keepends=True), 10))
    clear(not _GENERATED.search(head), "the file is generated")
    clear(not _THREADS.search(source), "another thread may use what the line makes")


_DECORATORS: Final = re.compile(
    r"(?:torch\.)?(?:no_grad|inference_mode|enable_grad)\b|(?:static|class)method$|property$|"
    r"pytest\.|\w*gpuperf\w*\."
)


def _clear_of_decorators(code: Code, statement: cst.CSTNode) -> None:
    """Be sure that no decorator reads, compiles or keeps what a function does."""
    for above in code.around(statement):
        if isinstance(above, cst.FunctionDef):
            texts = [code.text(d.decorator) for d in above.decorators]
            known = all(map(_DECORATORS.match, texts))
            clear(known, f"a decorator changes {above.name.value}()")
