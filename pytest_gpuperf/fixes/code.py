"""The syntax tree of a file: what a rule asks of it, and how it is changed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count, pairwise, repeat, takewhile
from typing import Any, TypeVar

import libcst as cst
from libcst import matchers as m
from libcst.helpers import parse_template_statement
from libcst.metadata import (
    CodePosition,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
)


Node = TypeVar("Node", bound=cst.CSTNode)
Scope = cst.Module | cst.FunctionDef | cst.ClassDef | cst.Lambda
Loop = cst.For | cst.While
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement

_Sets = (
    cst.AssignTarget | cst.AsName | cst.Del | cst.NameItem | cst.Param | cst.ImportAlias
)


class UnclearError(Exception):
    """A rule does not understand the code well enough to change it: says why."""


def clear(is_so: object, why: str) -> None:
    """Raise that a rule changes nothing, unless what it needs *is_so*."""
    if not is_so:
        raise UnclearError(why)


class Code:
    """The syntax tree of a file, with lines and parents of its nodes."""

    def __init__(self, source: str) -> None:
        wrapper = MetadataWrapper(cst.parse_module(source))
        self.module = wrapper.module
        self.width = max(88, *map(len, source.splitlines()))
        self._places = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)

    def at(self, node: cst.CSTNode) -> CodePosition:
        """Return the line and the column at which *node* begins."""
        return self._places[node].start

    def text(self, node: cst.CSTNode) -> str:
        """Return the source of *node*."""
        return self.module.code_for_node(node)

    def parent(self, node: cst.CSTNode) -> Any:
        """Return the node that *node* is a part of."""
        return self._parents[node]

    def around(self, node: cst.CSTNode) -> Iterator[Any]:
        """Yield what *node* is in, the innermost first."""
        while node is not self.module:
            node = self._parents[node]
            yield node

    def scope(self, node: cst.CSTNode) -> Scope:
        """Return the function, class or module whose names *node* uses."""
        return next(n for n in self.around(node) if isinstance(n, Scope))

    def loops(self, node: cst.CSTNode) -> list[Loop]:
        """Return the loops around *node* in its function, the innermost first."""
        own = takewhile(lambda n: not isinstance(n, Scope), self.around(node))
        return [each for each in own if isinstance(each, Loop)]

    def is_in(self, node: cst.CSTNode, block: cst.CSTNode) -> bool:
        """Whether *node* is a part of *block*."""
        return node is block or any(each is block for each in self.around(node))

    def is_after(self, node: cst.CSTNode, other: cst.CSTNode) -> bool:
        """Whether *node* begins where *other* is over."""
        start, end = self._places[node].start, self._places[other].end
        return (start.line, start.column) >= (end.line, end.column)

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the statement that *node* is in."""
        return next(n for n in (node, *self.around(node)) if isinstance(n, Statement))

    def statement_at(self, line: int) -> cst.CSTNode:
        """Return the innermost statement of *line*, of which it must be the only one."""
        every = [n for n in self.nodes(self.module) if isinstance(n, Statement)]
        around = [
            n for n in every if self.at(n).line <= line <= self._places[n].end.line
        ]
        clear(around, "no statement is at the line")
        found = around[-1]
        is_one = not isinstance(found, cst.SimpleStatementLine) or len(found.body) == 1
        clear(is_one, "the line has several statements")
        return found

    def nodes(self, inside: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield *inside* and all that is in it, in the order of the source."""
        yield inside
        for child in inside.children:
            yield from self.nodes(child)

    def following(self, statement: cst.CSTNode) -> list[Any]:
        """Return the statements after one in its block."""
        block = self.parent(statement)
        at = next(i for i, each in enumerate(block.body) if each is statement)
        return [*block.body[at + 1 :]]

    def made_by(self, names: str, user: cst.CSTNode) -> Any:
        """Return the one call of a class that makes what *user* names, or any."""
        calls = self.all(self.module, cst.Call)
        every = [c for c in calls if re.fullmatch(names, called(c))]
        own = self.words(user)
        named = [v for n in own for v in self.assigned(n, self.module) if v in every]
        made = [c for c in every if self.is_in(c, user)] or named or every
        clear(len(made) == 1, "it is not clear how it is made")
        return made[0]

    def all(self, inside: cst.CSTNode, kind: type[Node]) -> Iterator[Node]:
        """Yield the nodes of a *kind* in *inside*, in the order of the source."""
        return (node for node in self.nodes(inside) if isinstance(node, kind))

    def variables(self, inside: cst.CSTNode) -> Iterator[cst.Name]:
        """Yield the names of *inside* that are no attributes and no keywords."""
        for node in self.all(inside, cst.Name):
            above = self.parent(node)
            named = (getattr(above, "attr", None), getattr(above, "keyword", None))
            if node not in named:
                yield node

    def words(self, inside: cst.CSTNode) -> set[str]:
        """Return the names that *inside* uses."""
        return {node.value for node in self.variables(inside)}

    def names(self, name: str, inside: cst.CSTNode) -> list[cst.Name]:
        """Return where *inside* uses a variable called *name*."""
        return [node for node in self.variables(inside) if node.value == name]

    def defined(self, name: str) -> list[Any]:
        """Return the values of *name*, if plain assignments alone set it in the file."""
        values = self.assigned(name, self.module)
        stored = [n for n in self.names(name, self.module) if self.is_stored(n)]
        return values if len(values) == len(stored) else []

    def looked_at(self, name: str, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return what the function of *node* does with *name* where it does not set it."""
        uses = self.names(name, self.scope(node))
        return [self.parent(use) for use in uses if not self.is_stored(use)]

    def unused(self, name: str) -> str:
        """Return *name*, with a number if the file has it already."""
        taken = {node.value for node in self.all(self.module, cst.Name)}
        others = (f"{name}_{i}" for i in count(2))
        return next(n for n in others if n not in taken) if name in taken else name

    def calls(self, statement: cst.CSTNode, names: str) -> list[cst.Call]:
        """Return the calls of a statement whose last names match, but for those in its block."""
        calls = self.all(statement, cst.Call)
        fit = re.compile(names).fullmatch
        return [c for c in calls if fit(called(c)) and self.statement(c) is statement]

    def bound(
        self, name: str, inside: cst.CSTNode
    ) -> Iterator[tuple[cst.Name, cst.BaseExpression]]:
        """Yield where plain assignments in *inside* set *name*, and to what."""
        for target, value in self.bound_by(inside):
            if isinstance(target, cst.Name) and target.value == name:
                yield target, value

    def bound_by(self, inside: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, Any]]:
        """Yield targets and values of plain assignments: several of ``a, b = 0, 1``."""
        annotated = self.all(inside, cst.AnnAssign)
        yield from ((each.target, each.value) for each in annotated if each.value)
        for assign in self.all(inside, cst.Assign):
            for target in (each.target for each in assign.targets):
                value: Any = assign.value
                yield target, value
                if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
                    pairs = zip(target.elements, value.elements, strict=False)
                    yield from ((t.value, v.value) for t, v in pairs)

    def assigned(self, name: str, inside: cst.CSTNode) -> list[Any]:
        """Return the values that plain assignments in *inside* give to *name*."""
        return [value for _, value in self.bound(name, inside)]

    def is_stored(self, use: cst.Name) -> bool:
        """Whether a name is set, deleted or declared there, and not only looked at."""
        for inner, above in pairwise([use, *self.around(use)]):
            is_set = getattr(above, "target", 0) is inner or isinstance(above, _Sets)
            if is_set or isinstance(above, Statement):
                return is_set
        return False


def called(node: cst.CSTNode) -> str:
    """Return the last name of what *node* calls."""
    func = node.func if isinstance(node, cst.Call) else None
    name = getattr(func, "attr", func)
    return name.value if isinstance(name, cst.Name) else ""


def owner(node: cst.CSTNode) -> Any:
    """Return the ``x`` of a call ``x.method(...)``, or ``None``."""
    func = node.func if isinstance(node, cst.Call) else None
    return func.value if isinstance(func, cst.Attribute) else None


def is_torch(node: cst.CSTNode) -> bool:
    """Whether it calls a function of torch by its full name."""
    return m.matches(node, m.Call(func=m.Attribute(value=m.Name("torch"))))


def is_number(node: cst.CSTNode) -> bool:
    """Whether an expression is a number, as far as it shows it."""
    shown = m.OneOf(m.Integer(), m.Float(), m.BinaryOperation(), m.Call(m.Name("len")))
    # What a method returns may be of numpy, and of another type.
    other = m.List() | m.ListComp() | m.Tuple() | m.Call(m.Attribute())
    return m.matches(node, shown) and not m.findall(node, other)


def keyword(call: cst.Call, name: str) -> Any:
    """Return the argument *name* of a call, or ``None``."""
    return next((a for a in call.args if a.keyword and a.keyword.value == name), None)


def without(call: cst.Call, name: str) -> cst.Call:
    """Return *call* without the argument *name*."""
    args = [arg for arg in call.args if arg is not keyword(call, name)]
    last = call.args[-1]
    args[-1] = args[-1].with_changes(
        comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
    )
    return call.with_changes(args=args)


_Atom = cst.Name | cst.Attribute | cst.Call | cst.Subscript


def filled(template: str, **parts: Any) -> Any:
    """Return the small statement *template* with *parts* for its names in braces."""
    used = {n: part for n, part in parts.items() if f"{{{n}}}" in template}
    for name, part in used.items():
        is_bare = not isinstance(part, _Atom) and not part.lpar
        if f"{{{name}}}." in template and is_bare:
            around = {"lpar": [cst.LeftParen()], "rpar": [cst.RightParen()]}
            used[name] = part.with_changes(**around)
    line: Any = parse_template_statement(template, **used)
    return line.body[0]


def with_argument(call: cst.Call, name: str, value: str) -> cst.Call:
    """Return *call* with the argument *name*, in the style of its others."""
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    new = cst.Arg(cst.parse_expression(value), cst.Name(name), equal)
    if not call.args:
        return call.with_changes(args=[new])
    *others, last = call.args
    first = call.whitespace_before_args
    space = cst.SimpleWhitespace(" ") if first.empty else first
    comma = others[-1].comma if others else cst.Comma(whitespace_after=space)
    after = last.whitespace_after_arg
    new = new.with_changes(comma=last.comma, whitespace_after_arg=after)
    last = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    return call.with_changes(args=[*others, last, new])


def found_by(node: cst.CSTNode, *patterns: str) -> dict[str, Any] | None:
    """Return the parts of *node* in braces in the first of *patterns* that fits."""
    for pattern in patterns:
        parts: dict[str, Any] = {}
        if _fits(_tree(pattern), node, parts):
            return parts
    return None


@cache
def _tree(pattern: str) -> Any:
    tree: Any = cst.parse_statement(pattern.replace("{", "_part_").replace("}", ""))
    is_expression = m.matches(tree, m.SimpleStatementLine([m.Expr()]))
    return tree.body[0].value if is_expression else tree


_Space = cst.BaseParenthesizableWhitespace | cst.EmptyLine | cst.TrailingWhitespace
_Layout = _Space | cst.Comma | cst.AssignEqual | cst.Dot


def _fits(wanted: cst.CSTNode, node: cst.CSTNode, parts: dict[str, Any]) -> bool:
    if isinstance(wanted, cst.Name) and wanted.value.startswith("_part_"):
        part = parts.setdefault(wanted.value.removeprefix("_part_"), node)
        return node.deep_equals(part)
    if type(wanted) is not type(node):
        return False
    if isinstance(wanted, cst.Name | cst.Integer):
        return wanted.deep_equals(node)
    ours, its = (
        [c for c in n.children if not isinstance(c, _Layout)] for n in (wanted, node)
    )
    return len(ours) == len(its) and all(map(_fits, ours, its, repeat(parts)))


class Changes(cst.CSTTransformer):
    """Changes of a file, which are made all at once."""

    def __init__(self, code: Code, says: str = "") -> None:
        super().__init__()
        self.code, self.says = code, says
        self._new: dict[cst.CSTNode, Any] = {}
        self._before: dict[cst.CSTNode, list[cst.CSTNode]] = defaultdict(list)
        self._after: dict[cst.CSTNode, list[cst.CSTNode]] = defaultdict(list)
        self._leading: dict[cst.CSTNode, Sequence[cst.EmptyLine]] = {}

    def put(self, old: cst.CSTNode, new: cst.CSTNode) -> Changes:
        """Put *new* in the place of *old*, in its parentheses, which may have comments."""
        if isinstance(old, cst.BaseExpression) and isinstance(new, cst.BaseExpression):
            around = {
                "lpar": [*old.lpar, *new.lpar],
                "rpar": [*new.rpar, *old.rpar],
            }
            new = new.with_changes(**around) if old.lpar else new
        self._new[old] = new
        return self

    def before(self, statement: Any, text: str) -> Changes:
        """Insert a statement before another, behind the blank lines there."""
        lines = statement.leading_lines
        blank = next((i for i, line in enumerate(lines) if line.comment), len(lines))
        new = self._parsed(text).with_changes(leading_lines=lines[:blank])
        self._before[statement].append(new)
        self._leading[statement] = lines[blank:]
        return self

    def after(self, statement: cst.CSTNode, text: str) -> Changes:
        """Insert a statement after another, behind a blank line if *text* has one."""
        blank = [cst.EmptyLine(indent=False)] * text.startswith("\n")
        self._after[statement].append(
            self._parsed(text).with_changes(leading_lines=blank)
        )
        return self

    def swap(self, old: Any, template: str, **parts: Any) -> Changes:
        """Put an expression in the place of *old*, or one line in that of a statement."""
        new = filled(template, **parts)
        if isinstance(old, cst.SimpleStatementLine):
            return self.put(old, old.with_changes(body=[new]))
        if isinstance(old, Statement):
            lines = old.leading_lines
            return self.put(old, cst.SimpleStatementLine([new], leading_lines=lines))
        return self.put(old, new.value if isinstance(new, cst.Expr) else new)

    def add(self, call: cst.Call, name: str, value: str) -> Changes:
        """Give *call* one more argument."""
        return self.put(call, with_argument(call, name, value))

    def remove(self, statement: Any) -> Changes:
        """Remove a statement; the comments before it stay."""
        if len(self.code.parent(statement).body) == 1:
            return self.put(statement, statement.with_changes(body=[cst.Pass()]))
        lines = self._leading.pop(statement, statement.leading_lines)
        for following in self.code.following(statement)[:1]:
            self._leading[following] = [*lines, *following.leading_lines]
        self._new[statement] = cst.RemoveFromParent()
        return self

    def text(self) -> str:
        """Return the file as it is after the changes."""
        return cst.ensure_type(self.code.module.visit(self), cst.Module).code

    def on_leave(self, original_node, updated_node):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Change what the visit leaves."""
        new = self._new.get(original_node, updated_node)
        if isinstance(new, cst.SimpleStatementLine) and self._changes(original_node):
            new = self._narrow(original_node, new)
        if original_node in self._leading:
            new = new.with_changes(leading_lines=self._leading[original_node])
        before = self._before.get(original_node, [])
        after = self._after.get(original_node, [])
        return cst.FlattenSentinel([*before, new, *after]) if before or after else new

    def _changes(self, line: cst.SimpleStatementLine) -> bool:
        return any(self.code.statement(node) is line for node in self._new)

    def _narrow(self, old: Any, new: Any) -> Any:
        """Break a line that the changes make too wide, as black does."""
        small, module = new.body[0], self.code.module
        value: Any = getattr(small, "value", None)
        text = self.code.text(small)
        end = self.code.at(old).column + len(text)
        if end <= self.code.width or "\n" in text:
            return new
        indent = cst.SimpleWhitespace(module.default_indent)
        start = cst.ParenthesizedWhitespace(indent=True, last_line=indent)
        below = cst.ParenthesizedWhitespace(indent=True)
        calls = [call for call in self.code.all(small, cst.Call) if call.args]
        fitting = (c for c in calls if self._fits(c, text, self.code.at(old).column))
        call = next(fitting, value)
        if call in calls and not isinstance(value, cst.Tuple):
            new = new.with_deep_changes(call, whitespace_before_args=start)
            return new.with_deep_changes(call.args[-1], whitespace_after_arg=below)
        if isinstance(value, cst.Tuple) and not value.lpar:
            *others, last = value.elements
            commas = [cst.Comma(whitespace_after=space) for space in (start, below)]
            lines = [each.with_changes(comma=commas[0]) for each in others]
            around = {
                "elements": [*lines, last.with_changes(comma=commas[1])],
                "lpar": [cst.LeftParen(whitespace_after=start)],
                "rpar": [cst.RightParen()],
            }
            return new.with_deep_changes(small, value=value.with_changes(**around))
        return new

    def _fits(self, call: cst.Call, text: str, column: int) -> bool:
        """Whether three lines are wide enough for a *text* that breaks at *call*."""
        head, _, tail = text.partition(self.code.text(call))
        first = len(f"{head}{self.code.text(call.func)}(")
        second = len(text) - first - len(tail) + len(self.code.module.default_indent)
        return column + max(first, second - 1, len(tail) + 1) <= self.code.width

    def _parsed(self, text: str) -> cst.CSTNode:
        return cst.parse_statement(text, config=self.code.module.config_for_parsing)
