"""Which edits end what an audit found: rules by the name of their remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import libcst as cst

from ..model.finding import Finding, FindingKind
from ..report.line_syntax import with_context
from ..report.remedies import remedy_of
from . import calls, copies, reads
from .code import Changes, Code, UnclearError, clear
from .edits import ByHand, Edit


Rule = Callable[[Code, cst.CSTNode], Iterator[Changes]]

_NUMBER: Final[tuple[Rule, ...]] = (
    reads.number_in_loop,
    reads.list_in_loop,
    copies.read_before_loop,
)

_ONCE: Final[tuple[Rule, ...]] = (copies.made_once, copies.pinned)

REWRITES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "synchronize": (calls.without_call,),
    "empty-cache": (calls.without_call,),
    "printed-tensor": (*_NUMBER, calls.printed_sometimes),
    "positions": _NUMBER,
    "size": (calls.read_from_cpu,),
    "condition": (*_NUMBER, calls.asserted_on_gpu),
    "grad-scaler": (calls.fused_optimizer,),
    "finite-norm": (calls.checked_norm,),
    "index": (calls.numbers_of_loop, copies.read_before_loop),
    **dict.fromkeys(("number-in-formula", "kept-number", "read-number"), _NUMBER),
    "made-on-cpu": (copies.made_on_gpu, *_ONCE),
    **dict.fromkeys(("constant", "tensor-from-cpu", "copy-to-gpu"), _ONCE),
    "pinned-batch": (copies.both_ends,),
    "attribute": (copies.buffer,),
    "custom-batch": (copies.pinned_class,),
    "unpinned-batch": (copies.pinned_class, copies.both_ends),
    "pageable-batch": (copies.both_ends, copies.made_once),
    "cpu-index": (copies.index_once, copies.index_on_gpu),
    "repeat-interleave": (calls.known_size,),
    "sync": _NUMBER,
}
"""By the rule of a remedy, the rewrites tried in turn; other remedies say why there is none."""


def edits_of(finding: Finding, source: str, file: Path) -> Iterator[Edit | ByHand]:
    """Yield the edits of the text *source* of a *file* that may end *finding*, the best first.

    Without one, yield why: code that is not understood is left to its author.
    """
    line = finding.location.line if finding.location else 0
    remedy = remedy_of(_shown(finding, source, line))
    rule = (remedy.rule if remedy else "") or finding.kind.value
    by_hand = remedy.by_hand if remedy else ""
    edit = Edit(rule=rule, file=file, line=line, before=source, after=source)
    reasons: list[str] = []
    changes = _changes(finding, edit, reasons)
    edits = [replace(edit, after=each.text(), says=each.says) for each in changes]
    edits = [each for each in edits if each.after != source]
    yield from edits
    if not edits:
        why = next(iter(reasons), by_hand or "no rewrite fits its use")
        yield ByHand(rule=rule, file=file, line=line, why=why)


def _shown(finding: Finding, source: str, line: int) -> Finding:
    """Return *finding* with the text of its line, as remedies are chosen by."""
    text = "".join(source.splitlines()[line - 1 : line]).strip()
    return with_context(replace(finding, source=finding.source or text))


def _changes(finding: Finding, edit: Edit, reasons: list[str]) -> Iterator[Changes]:
    left = (reads.kept_less,) if finding.kind is FindingKind.LEFT else ()
    by_table = partial(calls.swapped, rule=edit.rule)
    try:
        code, statement = _understood(finding, edit.before, edit.file)
    except (UnclearError, cst.ParserSyntaxError) as error:
        reasons.append(str(error))
        return
    for rewrite in (*left, *REWRITES.get(edit.rule, ()), by_table):
        try:
            yield from rewrite(code, statement)
        except UnclearError as error:  # noqa: PERF203, each rule has its own reason
            reasons.append(str(error))


def _understood(finding: Finding, source: str, file: Path) -> tuple[Code, cst.CSTNode]:
    """Return the tree of a file and the statement that begins what was found."""
    place: Any = finding.forward or finding.location
    clear(place and Path(place.file).name == file.name, "another file begins it")
    clear("-packages" not in str(file), "the file is a library's")
    head = "".join(islice(source.splitlines(keepends=True), 10))
    clear(not _GENERATED.search(head), "the file is generated")
    clear(not _OTHERS.search(source), "a thread or eval() may use what the line makes")
    code = Code(source)
    clear(code.module.code == source, "its layout would change")
    statement = code.statement_at(place.line)
    _clear_of_decorators(code, statement)
    return code, statement


_GENERATED: Final = re.compile(r"(?i)^#.*(?:\bgenerated\b|do not edit)", re.MULTILINE)
_OTHERS: Final = re.compile(
    r"(?m)^\s*(?:import|from) [\w, ]*\b(?:threading|concurrent|multiprocessing\.\w+)\b"
    r"|(?<![.\w])(?:globals|locals|vars|eval|exec)\("
)
_DECORATORS: Final = re.compile(
    r"(?:torch\.)?(?:no_grad|inference_mode|enable_grad)\b|(?:static|class)method$|property$|"
    r"pytest\.|\w*gpuperf\w*\."
)


def _clear_of_decorators(code: Code, statement: cst.CSTNode) -> None:
    """Be sure that no decorator reads, compiles or keeps what a function does."""
    functions = [f for f in code.around(statement) if isinstance(f, cst.FunctionDef)]
    for function in functions:
        texts = [code.text(each.decorator) for each in function.decorators]
        is_known = all(map(_DECORATORS.match, texts))
        clear(is_known, f"a decorator changes {function.name.value}()")
