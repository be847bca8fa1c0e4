"""Numbers that a loop reads: kept on the GPU, and read where somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Any, Final

import libcst as cst
from libcst import matchers as m

from .code import Changes, Code, Loop, called, clear, filled, found_by, is_torch, owner


_STRIPPED: Final = frozenset({"cpu", "detach", "item", "clone"})
_COUNTING: Final = frozenset("argmax count_nonzero eq ne gt lt ge le long".split())
_REDUCING: Final = frozenset("sum mean norm prod std var max min amax amin".split())
_ARITHMETIC: Final = cst.Add | cst.Subtract | cst.Multiply | cst.Divide
_SHOWN: Final = m.Integer() | m.Float()
_NUMBER: Final = (
    _SHOWN
    | m.UnaryOperation(expression=_SHOWN)
    | m.Call(m.Name("float"), [m.Arg(m.SimpleString())])
)
_FOUND: Final = (
    "{x}.nonzero().size(0) {x}.nonzero().shape[0] len({x}.nonzero())".split()
)
_SIZE: Final = m.Name("len") | m.Attribute(attr=m.Name("size") | m.Name("numel"))
_SHAPE: Final = m.Subscript(m.Attribute(attr=m.Name("shape")))
_TERM: Final = m.Name() | _SHOWN | m.Attribute() | m.Call(_SIZE) | _SHAPE


def read_from(node: cst.CSTNode) -> Any:
    """Return the tensor of which *node* reads a number: ``x`` of ``x.item()``."""
    places = found_by(node, *_FOUND)
    if places:
        return filled("{x}.count_nonzero()", **places).value
    found = found_by(node, "{x}.item()", "float({x})", "int({x})")
    inner = found["x"] if found else None
    while inner and called(inner) in _STRIPPED and owner(inner) and not inner.args:
        inner = owner(inner)
    return None if inner and m.matches(inner, _NUMBER | m.SimpleString()) else inner


def reads(code: Code, value: cst.CSTNode) -> list[tuple[cst.CSTNode, Any]]:
    """Return what reads in *value*, and the tensors; all else in it is arithmetic."""
    tensor = read_from(value)
    if tensor:
        return [(value, tensor)]
    if isinstance(value, cst.BinaryOperation):
        is_square = found_by(value, "{x} ** 2")
        fits = is_square or isinstance(value.operator, _ARITHMETIC)
        clear(fits, f"{code.text(value)} is another formula on the GPU")
        return [*reads(code, value.left), *reads(code, value.right)]
    is_number = m.matches(value, _TERM)
    clear(is_number, f"it is not clear that {code.text(value)} is a number")
    return []


def is_fresh(code: Code, tensor: Any) -> bool:
    """Whether nothing writes into *tensor* later, as far as its function shows it."""
    tensor = owner(tensor) if called(tensor) == "detach" else tensor
    if not isinstance(tensor, cst.Name):
        is_new = owner(tensor) and called(tensor) in _REDUCING
        return isinstance(tensor, cst.BinaryOperation) or is_new
    values = code.assigned(tensor.value, code.scope(tensor))
    made = (isinstance(v, _MADE) and not is_view(v) for v in values)
    return bool(values) and all(made) and not written(tensor.value, code.scope(tensor))


_MADE: Final = cst.Call | cst.BinaryOperation
_VIEWS: Final = (
    "detach expand flatten float from_numpy get narrow select to view".split()
)


def is_view(value: cst.CSTNode) -> bool:
    """Whether a tensor may be a part of another one, as far as it shows it."""
    is_other = not isinstance(owner(value), cst.Call) or is_view(owner(value))
    return isinstance(value, cst.Subscript) or (called(value) in _VIEWS and is_other)


_IN_PLACE: Final = m.Name(m.MatchRegex(r"(?!__)\w*[^_]_\Z"))


def written(name: str, inside: cst.CSTNode) -> bool:
    """Whether *inside* changes the tensor *name* in place, or gives it another name."""
    this = m.Name(name)
    signs = (
        m.AugAssign(this | m.Subscript(this)),
        m.AssignTarget(m.Subscript(this)),
        m.Attribute(this, _IN_PLACE),
        m.Arg(this, keyword=m.Name("out")),
        m.Assign(value=this),
    )
    return any(m.findall(inside, sign) for sign in signs)


def keep(
    changes: Changes, value: Any, *, adds: bool = False, ints: bool = False
) -> None:
    """Let *value* compute with tensors, as exactly as Python does with numbers."""
    code = changes.code
    known = counts(code, value)
    for read, tensor in reads(code, value):
        # Of less than 64 bits a sum would overflow.
        is_cut = ints or called(read) == "int"
        bare = "" if known else ".long()" if is_cut else ".detach()"
        computes = adds or read is not value
        copied = "" if computes or is_fresh(code, tensor) else ".clone()"
        exact = ".double()" if computes and not ints else copied
        changes.swap(read, f"{{tensor}}{bare}{exact}", tensor=tensor)


def counts(code: Code, value: cst.CSTNode) -> bool:
    """Whether what *value* reads are whole numbers."""
    return all(_is_whole(tensor) for _, tensor in reads(code, value))


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor is of booleans or of numbers of 64 bits, as far as it shows it."""
    if m.matches(tensor, m.BinaryOperation(operator=m.BitAnd() | m.BitOr())):
        return _is_whole(tensor.left) or _is_whole(tensor.right)
    if called(tensor) in {"sum", "all", "any"}:
        return _is_whole(tensor.args[0].value if is_torch(tensor) else owner(tensor))
    return isinstance(tensor, cst.Comparison) or called(tensor) in _COUNTING


def _is_fraction(value: cst.CSTNode) -> bool:
    """Whether a formula of whole numbers has another result, as far as it shows it."""
    if isinstance(value, cst.BinaryOperation):
        divides = isinstance(value.operator, cst.Divide)
        return divides or _is_fraction(value.left) or _is_fraction(value.right)
    return isinstance(value, cst.Float)


def number_in_loop(code: Code, statement: Any) -> Iterator[Changes]:
    """``total += loss.item()``: add it up on the GPU, and read it after the loop."""
    found = found_by(statement, "{to} += {value}", "{to} -= {value}", "{to} = {value}")
    if found is None or not isinstance(found["to"], cst.Name):
        return
    name, value = found["to"].value, found["value"]
    adds = bool(code.names(name, value)) or not m.matches(statement.body[0], m.Assign())
    clear(reads(code, value), "the line reads nothing by .item() or float()")
    scope = code.scope(statement)
    clear(not isinstance(scope, cst.ClassDef), f"{name} is an attribute of a class")
    starts = [v for v in code.assigned(name, scope) if m.matches(v, _NUMBER)]
    clear(starts or not adds, f"it is not clear what {name} is before the loop")
    is_whole = adds and all(isinstance(start, cst.Integer) for start in starts)
    is_int = all(called(read) == "int" for read, _ in reads(code, value))
    counted = (is_int or counts(code, value)) and not _is_fraction(value)
    for ints in [False, True][counted : 1 + (counted or is_whole)]:
        changes = Changes(code)
        keep(changes, value, adds=adds, ints=ints)
        number = f"{'int' if ints else 'float'}({name})"
        _read_later(changes, statement, name, number if starts else f"{name}.item()")
        yield changes


def _read_later(changes: Changes, statement: Any, name: str, number: str) -> None:
    """Read *name* after the loop, and in what some turns of it run alone."""
    code = changes.code
    scope = code.scope(statement)
    block = next(iter(code.loops(statement)), scope)
    starts = [n for n, value in code.bound(name, scope) if m.matches(value, _NUMBER)]
    uses = [n for n in code.names(name, scope) if not code.is_in(n, statement)]
    for use in uses:
        if use not in starts:
            _clear_of_others(code, use, block)
            if code.is_in(use, block):
                _clear_of_each_turn(code, use, block)
                changes.put(use, cst.parse_expression(number))
    if any(not code.is_in(use, block) for use in uses if use not in starts):
        changes.after(block, f"{name} = {number}")


def _clear_of_others(code: Code, use: cst.Name, block: cst.CSTNode) -> None:
    """Be sure that *use* only looks at the number, and does so in this function."""
    at, own = f"line {code.at(use).line}", code.scope(use)
    is_here = own is block or (block is not code.module and own is code.scope(block))
    clear(is_here, f"{at} uses {use.value} in another function")
    names_itself = m.FormattedStringExpression(equal=m.AssignEqual())
    # What sets it after the loop, such as a mean, has the number there.
    is_set = code.is_stored(use) and not code.is_after(use, block)
    is_odd = is_set or m.matches(code.parent(use), names_itself)
    clear(not is_odd, f"{at} does something else with {use.value}")
    for above in code.around(block):
        if isinstance(above, cst.Try) or code.calls(above, "suppress"):
            is_in = code.is_in(use, above.body)
            clear(is_in, f"{at} uses {use.value} after an exception")


def _clear_of_each_turn(code: Code, use: cst.Name, block: cst.CSTNode) -> None:
    """Be sure that only some turns of the loop come to *use*."""
    inside = [use, *takewhile(lambda each: each is not block, code.around(use))]
    branches = [isinstance(o, cst.If) and i is o.body for i, o in pairwise(inside)]
    clear(any(branches), f"line {code.at(use).line} uses {use.value} in each step")


_APPEND: Final = "{kept}.append({value})"


def list_in_loop(code: Code, statement: Any) -> Iterator[Changes]:
    """``kept.append(loss.item())``: keep the tensors, and read them all after the loop."""
    call = next(iter(code.calls(statement, "append")), statement)
    found = found_by(call, _APPEND)
    if found is None or not isinstance(found["kept"], cst.Name):
        return
    name = found["kept"].value
    region = _loop_of_list(code, statement, name)
    imported = m.findall(code.module, m.ImportAlias(m.Name("torch"), asname=None))
    clear(imported, "the file does not import torch")
    for flat in ("", ".flatten()"):
        yield _read_list(code, region, name, f"torch.stack({name}){flat}.tolist()")


def _loop_of_list(code: Code, statement: Any, name: str) -> Loop:
    empty = m.List(elements=[]) | m.Call(m.Name("list"), args=[])
    scope = code.scope(statement)
    starts = [v for v in code.assigned(name, scope) if m.matches(v, empty)]
    clear(len(starts) == 1, f"it is not clear where {name} begins")
    loops = [loop for loop in code.loops(statement) if code.is_after(loop, starts[0])]
    clear(loops, f"{name} is not filled by a loop of this function")
    return loops[-1]


def _read_list(code: Code, region: Loop, name: str, read: str) -> Changes:
    changes, scope = Changes(code), code.scope(region)
    for use in code.names(name, scope):
        above, at = code.parent(use), f"line {code.at(use).line}"
        appended = found_by(code.parent(above), _APPEND)
        is_counted = m.matches(code.parent(above), m.Call(m.Name("len")))
        if code.is_after(region, use):
            clear(code.is_stored(use), f"{at} fills {name} before the loop")
        elif is_counted and code.scope(use) is scope:
            continue
        elif appended and code.is_in(use, region) and code.scope(use) is scope:
            clear(reads(code, appended["value"]), f"{at} appends another value")
            keep(changes, appended["value"], ints=counts(code, appended["value"]))
        else:
            _clear_of_others(code, use, region)
            if code.is_in(use, region):
                is_changed = isinstance(above, cst.Attribute)
                clear(not is_changed, f"{at} does something else with {name}")
                _clear_of_each_turn(code, use, region)
                changes.put(use, cst.parse_expression(read))
    return changes.after(region, f"{name} = {read} if {name} else []")


_KEEPS: Final = ("{kept}.append({x})", "{kept}.appendleft({x})")
_SLICES: Final = ("{x}[{i}]", "{x}[{a}:{b}]", "{x}[::{n}]", "{x}[:{b}]", "{x}[{a}:]")


def kept_less(code: Code, statement: Any) -> Iterator[Changes]:
    """``log.append(loss)``, ``log.append(x[::8])``: keep no graph, and no more than that."""
    made = {t.value for t, _ in code.bound_by(statement) if isinstance(t, cst.Name)}
    for call in code.all(code.scope(statement), cst.Call):
        found = found_by(call, *_KEEPS)
        names = code.words(found["x"]) if found else set()
        if found and (names & made or code.statement(call) is statement):
            uses = map(code.statement, code.looked_at(code.text(found["kept"]), call))
            trains = any(code.calls(use, "backward|grad") for use in uses)
            clear(not trains, "what is kept is trained later")
            x = found["x"]
            is_slice = found_by(owner(x) if called(x) == "detach" else x, *_SLICES)
            has_graph = not is_slice or "detach" not in code.text(x)
            less = ".detach()" * has_graph + ".clone()" * bool(is_slice)
            yield Changes(code).swap(x, f"{{x}}{less}", x=x)
