"""What a line of source is part of: where its values come from, and where they go."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import Final, cast

from ..model.finding import Finding, FindingKind, Location


MOST_USES: Final = 8
LONGEST: Final = 400

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (ast.For, ast.AsyncFor, ast.While, *_FUNCTIONS)


def with_context(found: Finding) -> Finding:
    """Return *found* with the statement at its line, and then those that use its value.

    In the first the names are replaced by what they are defined as, in the others, a
    line each, what the statement assigns is in the place of its name.
    """
    is_work = found.kind is FindingKind.WORK  # Many lines, without a remedy.
    return found if is_work else replace(found, context=_context(found.location))


def _context(place: Location | None) -> str:
    path = _path_to(place) if place and place.exact else []
    if not path or hasattr(path[-1], "body"):
        return ""
    statement = _inlined(path[-1], _definitions(path))
    texts = map(ast.unparse, (statement, *_uses(path)))
    return "\n".join(text.partition("\n")[0][:LONGEST] for text in texts)


def _path_to(place: Location) -> list[ast.AST]:
    """Return the blocks around the statement of a line, the outermost first, and it."""
    tree = _tree("".join(linecache.getlines(place.file)))
    path: list[ast.AST] = []
    inner = [tree] if tree else []
    while len(inner) == 1:
        path += inner
        inner = [s for s in _statements(path[-1]) if place.line in _lines(s)]
    # Of several statements on a line nobody knows which it is.
    return [] if inner else path


def _lines(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or 0) + 1)


@lru_cache(maxsize=32)
def _tree(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _statements(block: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(block):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements(child)


# Where values come from.


def _definitions(path: Iterable[ast.AST]) -> Mapping[str, ast.expr]:
    """Return by name what is called for it, or for what a loop takes it from."""
    scopes = (scope for scope in path if isinstance(scope, (ast.Module, *_FUNCTIONS)))
    found: dict[str, set[ast.expr]] = {}
    for node in chain(*map(ast.walk, scopes)):
        for name, value in _bound(node):
            found.setdefault(name, set()).add(value)
    return {
        name: value
        for name, (value, *others) in found.items()
        if not others and isinstance(value, ast.Call | ast.Name | ast.Compare)
    }


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    targets, value = [], None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.For | ast.comprehension):
        targets, value = [node.target], node.iter
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from ((p.id, value) for p in parts if value and isinstance(p, ast.Name))


# Where they go.


def _uses(path: list[ast.AST]) -> Iterator[ast.AST]:
    values = dict(_bound(path[-1]))
    blocks = [path[0], *(b for b in path if isinstance(b, _BLOCKS))]
    others = (s for s in ast.walk(blocks[-1]) if s is not path[-1])
    headers = (_header(s) for s in others if isinstance(s, ast.stmt))
    found = (
        use
        for use in headers
        if values.keys() & {getattr(n, "id", "") for n in ast.walk(use)}
    )
    for use in islice(found, MOST_USES):
        yield _inlined(use, values)


def _header(statement: ast.stmt) -> ast.stmt:
    """Return it without the statements in it."""
    header = copy(statement)
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        if hasattr(header, part):
            setattr(header, part, [])
    return header


class _Inliner(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_read = isinstance(node.ctx, ast.Load)
        return deepcopy(self._values.get(node.id, node)) if is_read else node


def _inlined(statement: ast.AST, values: Mapping[str, ast.expr]) -> ast.AST:
    # What a loop takes from a name has that name's own definition.
    once = _Inliner(values).visit(deepcopy(statement))
    return cast("ast.AST", _Inliner(values).visit(once))
