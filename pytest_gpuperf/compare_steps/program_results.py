"""What a program's loops leave in its variables: the proof of one that neither trains nor prints."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from ..model.ab import Sketch
from .training_record import flat, numbers_in, of_numbers


MOST_NUMBERS: Final = 10_000
"""Tensors and numbers of a variable: of more, only the first are compared."""


def results_of(program: Mapping[str, Any]) -> dict[str, Sketch]:
    """Sketch the numbers of each variable that a loop of the module *program* itself writes.

    What it only reads would be the same whatever the loop computes.
    """
    source = "".join(linecache.getlines(program.get("__file__") or ""))
    results: dict[str, Sketch] = {}
    for name in sorted(_written_by_loops(source) & program.keys()):
        # Some kinds of tensors have no plain numbers, and so has a list that holds itself.
        with suppress(RuntimeError, TypeError, ValueError, OverflowError):
            vector = flat([*islice(numbers_in(program[name]), MOST_NUMBERS)])
            if vector is not None:
                results[name] = of_numbers(vector)
    return results


def _written_by_loops(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a program without its source
        return set()
    loops = [n for n in _own_nodes(tree) if isinstance(n, ast.For | ast.While)]
    bodies = (_own_nodes(part) for loop in loops for part in loop.body)
    return {name for body in bodies for node in body for name in _written_by(node)}


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield *node* and all nodes below it, but for functions and classes."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)


def _written_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case (
            ast.Subscript(value=inside, ctx=ast.Store())
            | ast.Expr(value=ast.Call(func=ast.Attribute(value=inside)))
        ):
            # As `losses.append(loss)` and `result[0].fill_(5)`.
            yield from (n.id for n in ast.walk(inside) if isinstance(n, ast.Name))
