"""What a line of source does, and what it is part of, as far as syntax shows it."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache
from itertools import chain, islice
from typing import Final, cast

from ..model.finding import Finding, FindingKind, Location


class LineDoes(Enum):
    """What a line does that the operation alone cannot tell."""

    MAKES_CONSTANT = auto()
    """It makes a tensor of values that the line itself contains."""
    MAKES_TENSOR = auto()
    """It makes a tensor of a list, an array or a number."""
    COMPUTES_ON_CPU = auto()
    """It copies what it computes of a tensor that torch makes on the CPU."""
    DECIDES_SIZE = auto()
    """What it reads is the size of something."""
    REPEATS = auto()
    """What it reads decides how often a loop runs."""
    DECIDES = auto()
    """What it reads decides what runs next."""
    CALCULATES = auto()
    """What it reads is a term of a formula."""
    CALLS_HOST = auto()
    """What it reads goes into a function, and the line needs the result."""
    COMPARES_IN_PYTHON = auto()
    """It calls Python's own ``max`` or ``min`` of tensors."""
    JOINS = auto()
    """It makes a tensor of what it reads."""
    PICKS = auto()
    """What it reads is an index of a tensor or a list, or a key."""
    READS_POSITION = auto()
    """What it reads is the place of an element."""
    PASSES_NUMBER = auto()
    """What it reads is a number that torch is given."""
    PUTS_NUMBER = auto()
    """It assigns a number to a part of a tensor."""
    KEEPS_IN_OBJECT = auto()
    """It assigns what it reads to an attribute or an item, and to nothing else."""
    INDEXES = auto()
    """It indexes by a list, or reads what a name is an index of."""


@lru_cache(maxsize=512)
def deeds_of(source: str) -> frozenset[LineDoes]:
    """Return all that the line *source* does; nothing if it is no Python by itself."""
    tree = _parsed(source.strip())
    if tree is None:
        return frozenset()
    return frozenset(does for does, shows in _SIGNS.items() if shows(tree))


@lru_cache(maxsize=512)
def deeds_in_use(context: str) -> frozenset[LineDoes]:
    """Return what the statements do that use a number, which the first of *context* reads."""
    statement, *uses = context.split("\n")
    values = _values(_parsed(statement) or ast.Pass())
    if not any(_is_read(v) or (_reads(v) and isinstance(v, ast.BinOp)) for v in values):
        return frozenset()
    # A function that is given a number may only log it.
    return frozenset(chain(*map(deeds_of, uses))) - {LineDoes.CALLS_HOST}


# A line may be a part of its statement only.

_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_HEADER: Final = re.compile(r"(?:if|for|while|with|def|class|async)\b.*:\s*(?:#.*)?$")


def _parsed(source: str) -> ast.AST | None:
    text = re.sub(r"^elif\b", "if", source)
    text = re.sub(r"^(and|or)\b", r"_ \1", text)
    text = f"{text}\n    pass" if _HEADER.match(text) else text
    closing = _closing(text)
    candidates = (text, f"{text}{closing}", f"{text}{closing}: pass")
    return next(filter(None, map(_tree, candidates)), None)


def _tree(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _closing(text: str) -> str:
    """Return the brackets that later lines close."""
    closing: list[str] = []
    for sign in text:
        if sign in _OPENING:
            closing.append(_OPENING[sign])
        elif closing and sign == closing[-1]:
            closing.pop()
    return "".join(reversed(closing))


# What reads a tensor, and where the number goes.

_READING_METHODS: Final = frozenset({"item", "tolist", "cpu", "numpy"})
_CONVERSIONS: Final = re.compile(
    r"array|as_tensor|asarray|from_numpy|list|round|stack|str|tensor"
)
"""What goes on with the same values."""

_MODULES: Final = frozenset({"cmath", "json", "math", "operator", "statistics"})
"""Modules of Python that compute with numbers."""


def _name(call: ast.AST) -> str:
    """Return the last name of what is called, without what it belongs to."""
    func = call.func if isinstance(call, ast.Call) else None
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _is_read(node: ast.AST) -> bool:
    return _reads_by_method(node) or _converts(node)


def _calls(node: ast.AST, names: str) -> bool:
    """Whether it calls one of the functions *names*, and no method of that name."""
    is_function = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return is_function and _name(node) in names.split()


def _reads_by_method(node: ast.AST) -> bool:
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and _name(node) in _READING_METHODS


def _converts(node: ast.AST) -> bool:
    """Whether it calls a type of Python, which reads a tensor but takes anything."""
    return (
        isinstance(node, ast.Call)
        and _calls(node, "bool float int")
        and not all(map(_is_literal, node.args))
    )


def _reads(tree: ast.AST) -> bool:
    return any(map(_is_read, ast.walk(tree)))


def _any_reads(tree: ast.AST, places: Iterable[ast.AST]) -> bool:
    """Whether what reads is in one of the *places*: all may, if the line does not say."""
    for shows in (_reads_by_method, _converts):
        if any(map(shows, ast.walk(tree))):
            return any(shows(node) for place in places for node in ast.walk(place))
    return any(True for _ in places)


# Sizes.

_SIZED: Final = re.compile(
    r"arange|chunk|empty|expand|eye|narrow|new_(?:empty|ones|zeros)|ones|"
    r"pack_padded_sequence|pad|randn?|range|repeat|reshape|split(?:_with_sizes)?|"
    r"tensor_split|tile|unflatten|view|zeros"
)
_SIZES: Final = re.compile(
    r"(?:\w+_)?(?:size|length|classes|nodes|segments)|minlength|num_\w+|max_len"
)
"""Names of arguments."""


def _sizes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _SIZED.fullmatch(_name(node)):
            yield from (arg for arg in node.args if not _is_literal(arg))
        elif isinstance(node, ast.keyword) and _SIZES.fullmatch(node.arg or ""):
            yield from () if _is_literal(node.value) else (node.value,)
        elif _is_next(node):
            yield node
        elif isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            yield from (end for end in ends if end and not _is_literal(end))


def _is_next(node: ast.AST) -> bool:
    """Whether it is one more than the greatest."""
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant)
    return is_sum and any(_name(part) == "max" for part in ast.walk(node))


# Conditions.


def _decides(tree: ast.AST) -> bool:
    conditions = [*_conditions(tree)]
    asked = [node for each in conditions for node in ast.walk(each)]
    # What asks a tensor mostly calls something.
    if not _reads(tree) and not any(isinstance(node, ast.Call) for node in asked):
        # `x if is_last else table[i]`: an index on the GPU is read, and no flag.
        indices = [index for index in _indices(tree) if index not in asked]
        return bool(conditions) and _names(indices) <= _names(conditions)
    return _any_reads(tree, conditions)


def _names(places: Iterable[ast.AST]) -> set[str]:
    nodes = (node for place in places for node in ast.walk(place))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _conditions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test
        elif isinstance(node, ast.BoolOp | ast.Not) or _calls(node, "all any bool"):
            yield node
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


# Numbers that are read to go on with.


def _calculates(tree: ast.AST) -> bool:
    return any(
        isinstance(value, ast.BinOp) and _has_term(value) for value in _values(tree)
    )


def _values(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what a line assigns or returns; what it adds up is another thing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and node.value:
            yield node.value


def _has_term(value: ast.AST) -> bool:
    if isinstance(value, ast.BinOp):
        return _has_term(value.left) or _has_term(value.right)
    if isinstance(value, ast.UnaryOp):
        return _has_term(value.operand)
    return _is_read(value) and _name(value) in {"item", "float"}


def _calls_host(tree: ast.AST) -> bool:
    """Whether what is read goes into a call, and the line goes on with its result."""
    calls = (value for value in _values(tree) if isinstance(value, ast.Call))
    return any(
        any(map(_reads, call.args))
        for call in calls
        if not _is_read(call) and not _CONVERSIONS.fullmatch(_name(call))
    )


def _passes_number(tree: ast.AST) -> bool:
    # Meters and lists take what is read in words; torch takes it as it is.
    takers = _is_torch if _reads(tree) else _may_be_torch
    return _any_reads(tree, _numbers(tree, takers))


def _numbers(tree: ast.AST, takes: Callable[[ast.expr], bool]) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            places = given if takes(node.func.value) else []
            yield from (place for place in places if not _is_literal(place))


def _indices(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            places = _parts(node.slice)
            yield from (place for place in places if not _is_literal(place))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            yield node.left


def _is_torch(owner: ast.expr) -> bool:
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name) and owner.id in {"torch", "F", "nn"}


def _may_be_torch(owner: ast.expr) -> bool:
    is_module = isinstance(owner, ast.Name) and owner.id in _MODULES
    return not is_module and not isinstance(owner, ast.Constant)


_POSITIONS: Final = re.compile(
    r"arg(?:max|min|sort|where)|bucketize|nonzero|searchsorted"
)
_SAME_VALUES: Final = re.compile(r"detach|flatten|long|reshape|squeeze|view")


def _is_position(value: ast.AST) -> bool:
    """Whether it is what a search returns, or an element of that."""
    if isinstance(value, ast.Subscript):
        return _is_position(value.value)
    if _converts(value) and isinstance(value, ast.Call):
        return any(map(_is_position, value.args))
    owner = getattr(getattr(value, "func", None), "value", None)
    if owner and (_reads_by_method(value) or _SAME_VALUES.fullmatch(_name(value))):
        return _is_position(owner)
    return bool(_POSITIONS.fullmatch(_name(value)))


# Tensors made of Python's values, and indices.

_MAKERS: Final = re.compile(r"(?:new_|as_)?tensor|from_numpy|\w+Tensor")
_PURE: Final = re.compile(
    r"abs|enumerate|float|int|list|math|max|min|pow|range|reversed|round|sorted|sum|"
    r"tuple|zip|[A-Z][A-Z0-9_]*"
)
"""Names that stand for the same each time; those in capitals by convention."""


def _makes(node: ast.AST) -> bool:
    return bool(_MAKERS.fullmatch(_name(node)))


_ON_CPU: Final = frozenset("zeros ones full eye arange linspace logspace".split())
_MOVES: Final = frozenset({"to", "cuda"})


def _computes_on_cpu(tree: ast.AST) -> bool:
    moved = (move.func for move in _calls_of(tree, _MOVES) if not _has_loader(move))
    makers = (maker for func in moved for maker in _calls_of(func, _ON_CPU))
    return any("device" not in {k.arg for k in maker.keywords} for maker in makers)


def _has_loader(tree: ast.AST) -> bool:
    return any("Loader" in _name(node) for node in ast.walk(tree))


def _calls_of(tree: ast.AST, names: frozenset[str]) -> Iterator[ast.Call]:
    """Yield the calls of functions and methods of these *names*."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    yield from (call for call in calls if _name(call) in names)


def _made_of(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _makes(node):
            yield from node.args[:1]


def _is_constant(value: ast.AST) -> bool:
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return all(name.id in bound or _PURE.fullmatch(name.id) for name in names)


def _is_literal(value: ast.AST) -> bool:
    return not any(isinstance(n, ast.Name | ast.Attribute) for n in ast.walk(value))


def _assigned(tree: ast.AST) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    yield target, node.value


def _puts_number(tree: ast.AST) -> bool:
    return any(
        _is_literal(value)
        and not isinstance(value, ast.List | ast.Tuple)
        and not any(map(_is_list, _parts(target.slice)))
        for target, value in _assigned(tree)
    )


def _keeps_in_object(tree: ast.AST) -> bool:
    body = getattr(tree, "body", [tree])
    return bool(body) and all(
        isinstance(node, ast.Assign)
        and all(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets)
        and _is_read(node.value)
        for node in body
    )


def _indexes(tree: ast.AST) -> bool:
    subscripts = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript))
    return any(
        _is_list(part)
        or (
            isinstance(node.ctx, ast.Load)
            and isinstance(part, ast.Name | ast.Attribute)
        )
        for node in subscripts
        for part in _parts(node.slice)
    )


def _is_list(index: ast.expr) -> bool:
    return isinstance(index, ast.List | ast.ListComp) or _name(index) == "range"


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


_SIGNS: Final[Mapping[LineDoes, Callable[[ast.AST], bool]]] = {
    LineDoes.MAKES_CONSTANT: lambda tree: any(map(_is_constant, _made_of(tree))),
    LineDoes.JOINS: lambda tree: _any_reads(tree, _made_of(tree)),
    LineDoes.PICKS: lambda tree: _any_reads(tree, _indices(tree)),
    LineDoes.READS_POSITION: lambda tree: any(
        map(_is_position, filter(_is_read, ast.walk(tree)))
    ),
    LineDoes.PASSES_NUMBER: _passes_number,
    LineDoes.MAKES_TENSOR: lambda tree: any(map(_makes, ast.walk(tree))),
    LineDoes.COMPUTES_ON_CPU: _computes_on_cpu,
    LineDoes.DECIDES_SIZE: lambda tree: _any_reads(tree, _sizes(tree)),
    LineDoes.REPEATS: lambda tree: any(
        isinstance(n, ast.While) for n in ast.walk(tree)
    ),
    LineDoes.DECIDES: _decides,
    LineDoes.CALCULATES: _calculates,
    LineDoes.CALLS_HOST: _calls_host,
    LineDoes.COMPARES_IN_PYTHON: lambda tree: _any_reads(
        tree, (n for n in ast.walk(tree) if _calls(n, "max min"))
    ),
    LineDoes.PUTS_NUMBER: _puts_number,
    LineDoes.KEEPS_IN_OBJECT: _keeps_in_object,
    LineDoes.INDEXES: _indexes,
}


# What a line of source is part of: where its values come from, and where they go.


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
    statement = _inlined(path[-1], {**_definitions(path), **_given(path)})
    texts = map(ast.unparse, (statement, *_uses(path)))
    return "\n".join(text.partition("\n")[0][:LONGEST] for text in texts)


def _path_to(place: Location) -> list[ast.AST]:
    """Return the blocks around the statement of a line, the outermost first, and it."""
    tree = _tree_of("".join(linecache.getlines(place.file)))
    path: list[ast.AST] = []
    inner = [tree] if tree else []
    while len(inner) == 1:
        path += inner
        inner = [
            statement
            for statement in _statements(path[-1])
            if statement.lineno <= place.line <= (statement.end_lineno or 0)
        ]
    # Of several statements on a line nobody knows which it is.
    return [] if inner else path


@lru_cache(maxsize=32)
def _tree_of(text: str) -> ast.AST | None:
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
    """Return by name the call that makes it, or that makes what a loop takes it from."""
    scopes = [scope for scope in path if isinstance(scope, (ast.Module, *_FUNCTIONS))]
    # A parameter hides the name outside of its function.
    given = {
        n.arg for scope in scopes[1:] for n in ast.walk(scope) if isinstance(n, ast.arg)
    }
    found: dict[str, set[ast.expr]] = {}
    for node in chain(*map(ast.walk, scopes)):
        for name, value in _bound(node):
            found.setdefault(name, set()).add(value)
    return {
        name: value
        for name, (value, *others) in found.items()
        if not others and isinstance(value, ast.Call | ast.Name | ast.Compare)
        if name not in given
    }


def _given(path: list[ast.AST]) -> Mapping[str, ast.expr]:
    """Return by parameter of the innermost function what all its calls pass for it."""
    function = next((b for b in reversed(path) if isinstance(b, _FUNCTIONS)), None)
    if function is None:
        return {}
    names = [arg.arg for arg in function.args.args if arg.arg != "self"]
    bound = {name for node in ast.walk(function) for name, _ in _bound(node)}
    passed = [
        dict(zip(names, call.args, strict=False))
        for call in ast.walk(path[0])
        if isinstance(call, ast.Call) and _name(call) == function.name
    ]
    return {
        name: value
        for each in passed[:1]
        for name, value in each.items()
        if name not in bound
        if isinstance(value, ast.Call | ast.Name)
        if {ast.dump(value)} == {ast.dump(p.get(name, ast.Pass())) for p in passed}
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
