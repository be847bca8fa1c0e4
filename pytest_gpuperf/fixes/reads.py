"""Numbers that a loop reads: kept on the GPU, and read where somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst
from libcst import matchers as m

from .code import Changes, Code, Loop, called, clear, filled, found_by, owner


_STRIPPED: Final = frozenset({"cpu", "detach", "item", "clone"})
_COUNTING: Final = frozenset(
    {"argmax", "count_nonzero", "eq", "ne", "gt", "lt", "ge", "le", "int", "long"}
)
_REDUCING: Final = frozenset(
    {"sum", "mean", "norm", "prod", "std", "var", "amax", "amin", "count_nonzero"}
)
_LITERAL: Final = (
    m.Integer() | m.Float() | m.UnaryOperation(expression=m.Integer() | m.Float())
    | m.Call(func=m.Name("float"), args=[m.Arg(value=m.SimpleString())])
)  # fmt: skip


def read_from(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the tensor of which *node* reads a number: ``x`` of ``x.item()``."""
    is_item = called(node) == "item" and isinstance(node, cst.Call) and not node.args
    inner = owner(node) if is_item else None
    conversion = m.Call(
        func=m.Name("float") | m.Name("int"), args=[m.Arg(keyword=None)]
    )
    if m.matches(node, conversion):
        inner = cst.ensure_type(node, cst.Call).args[0].value
        inner = None if m.matches(inner, _LITERAL | m.SimpleString()) else inner
    while inner is not None and called(inner) in _STRIPPED and not inner.args:
        inner = owner(inner)
    return inner


def reads(code: Code, value: cst.CSTNode) -> list[tuple[cst.Call, cst.BaseExpression]]:
    """Return what reads in *value*, and the tensors; all else in it is arithmetic."""
    found: list[tuple[cst.Call, cst.BaseExpression]] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        tensor = read_from(node)
        if tensor is not None:
            found.append((cst.ensure_type(node, cst.Call), tensor))
        elif isinstance(node, cst.BinaryOperation):
            fits = isinstance(
                node.operator, cst.Add | cst.Subtract | cst.Multiply | cst.Divide
            )
            clear(fits, f"{code.text(node)} is another formula on the GPU")
            waiting += [node.left, node.right]
        else:
            size = m.Call(
                func=m.Name("len") | m.Attribute(attr=m.Name("size") | m.Name("numel"))
            )
            shape = m.Subscript(value=m.Attribute(attr=m.Name("shape")))
            plain = m.OneOf(
                m.Name(), m.Integer(), m.Float(), m.Attribute(), size, shape
            )
            clear(
                m.matches(node, plain),
                f"it is not clear whether {code.text(node)} is a number",
            )
    clear(found, "the line reads no number by .item() or float()")
    return found


def is_fresh(code: Code, tensor: cst.BaseExpression) -> bool:
    """Whether nothing writes into *tensor* later, as far as its function shows it."""
    if isinstance(tensor, cst.BinaryOperation):
        return True
    if isinstance(tensor, cst.Call):
        return called(tensor) in _REDUCING
    if not isinstance(tensor, cst.Name):
        return False
    scope = code.scope(tensor)
    values = code.assigned(tensor.value, scope)
    made = all(isinstance(v, cst.Call | cst.BinaryOperation) for v in values)
    return bool(values) and made and not written(tensor.value, scope)


_WRITING: Final = m.MatchRegex(r"(?!__)\w*[^_]_\Z")


def written(name: str, inside: cst.CSTNode) -> bool:
    """Whether *inside* changes the tensor *name* in place, or gives it another name."""
    this = m.Name(name)
    signs = (
        m.AugAssign(target=this | m.Subscript(value=this)),
        m.AssignTarget(target=m.Subscript(value=this)),
        m.Attribute(value=this, attr=m.Name(_WRITING)),
        m.Arg(keyword=m.Name("out"), value=this),
        m.Assign(value=this),
        m.Del(),
    )
    return any(m.findall(inside, sign) for sign in signs)


def kept_on_gpu(
    changes: Changes, value: cst.CSTNode, *, adds: bool = False, ints: bool
) -> None:
    """Let *value* compute with tensors, as exactly as Python does with numbers."""
    code = changes.code
    for read, tensor in reads(code, value):
        is_formula = adds or read is not value
        copy = "" if is_fresh(code, tensor) else ".clone()"
        exact = ("" if ints else ".double()") if is_formula else copy
        is_whole = ints and counts(code, value)
        text = f"{'' if is_whole else '.detach()'}{exact}"
        changes.put(
            read, filled(f"{{tensor}}{text}", tensor=tensor) if text else tensor
        )


def counts(code: Code, value: cst.CSTNode) -> bool:
    """Whether what *value* reads are whole numbers."""
    tensors = [tensor for _, tensor in reads(code, value)]
    compares = any(True for t in tensors for _ in code.all(t, cst.Comparison))
    calls = {called(call) for t in tensors for call in code.all(t, cst.Call)}
    floats = calls & {"float", "mean", "double"}
    return (compares or bool(calls & _COUNTING)) and not floats


def number_in_loop(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``total += loss.item()``: add it up on the GPU, and read it after the loop."""
    target = _target(code, statement)
    if target is None:
        return
    name, value, adds = target
    region = next(iter(code.loops(statement)), None)
    inits = [
        v for v in code.assigned(name, code.scope(statement)) if m.matches(v, _LITERAL)
    ]
    has_start = bool(inits)
    clear(not adds or has_start, f"it is not clear what {name} is before the loop")
    whole = [True] if counts(code, value) else [False]
    if not any(whole) and all(isinstance(i, cst.Integer) for i in inits) and adds:
        whole = [False, True]
    for ints in whole:
        changes = Changes(code)
        kept_on_gpu(changes, value, adds=adds, ints=ints)
        convert = (
            f"{'int' if ints else 'float'}({name})" if has_start else f"{name}.item()"
        )
        _read_where_used(changes, statement, region, name, convert)
        yield changes


def _target(
    code: Code, statement: cst.CSTNode
) -> tuple[str, cst.BaseExpression, bool] | None:
    """Return the name that a statement sets, to what, and whether it had a part in that."""
    body = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    match [*body]:
        case [
            cst.AugAssign(target=cst.Name(value=name), operator=operator, value=value)
        ]:
            adds = isinstance(operator, cst.AddAssign | cst.SubtractAssign)
            return (name, value, True) if adds else None
        case [
            cst.Assign(
                targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value
            )
        ]:
            return name, value, any(code.names(name, value))
    return None


def _read_where_used(
    changes: Changes,
    statement: cst.CSTNode,
    region: Loop | None,
    name: str,
    convert: str,
) -> None:
    """Read *name* after the loop, and in what some turns of it run alone."""
    code = changes.code
    scope = code.scope(statement)
    clear(not isinstance(scope, cst.ClassDef), f"{name} is an attribute of a class")
    block = region or scope
    is_used_after = False
    starts = [n for n, value in code.bound(name, scope) if m.matches(value, _LITERAL)]
    for use in code.names(name, scope):
        if code.is_in(use, statement) or use in starts:
            continue
        _clear_of_others(code, use, scope, block, name)
        if code.is_in(use, block):
            _clear_of_each_turn(code, use, block, name)
            changes.put(use, cst.parse_expression(convert))
        elif code.is_after(use, block):
            is_used_after = True
    if is_used_after:
        changes.after(block, f"{name} = {convert}")


def _clear_of_others(
    code: Code, use: cst.Name, scope: cst.CSTNode, block: cst.CSTNode, name: str
) -> None:
    """Be sure that *use* only looks at the number, and does so in this function."""
    at = f"line {code.line(use)}"
    clear(code.scope(use) is scope, f"{at} uses {name} in another function")
    names_itself = m.FormattedStringExpression(equal=m.AssignEqual())
    is_odd = code.is_stored(use) or m.matches(code.parent(use), names_itself)
    clear(not is_odd, f"{at} does something else with {name}")
    for above in code.around(use):
        if isinstance(above, cst.ExceptHandler | cst.Finally):
            clear(code.is_in(above, block), f"{at} uses {name} after an exception")


def _clear_of_each_turn(
    code: Code, use: cst.Name, block: cst.CSTNode, name: str
) -> None:
    """Be sure that only some turns of the loop come to *use*."""
    inner: cst.CSTNode = use
    for above in code.around(use):
        if above is block:
            break
        if isinstance(above, cst.If) and inner is above.body:
            return
        inner = above
    clear(None, f"line {code.line(use)} uses {name} in each step")


def list_in_loop(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``kept.append(loss.item())``: keep the tensors, and read them all after the loop."""
    call = m.Call(
        func=m.Attribute(value=m.Name(), attr=m.Name("append")), args=[m.Arg()]
    )
    wanted = m.SimpleStatementLine(body=[m.Expr(value=call)])
    if not m.matches(statement, wanted):
        return
    append = next(code.all(statement, cst.Call))
    name, value = cst.ensure_type(owner(append), cst.Name).value, append.args[0].value
    reads(code, value)
    clear(code.imports("torch"), "the file does not import torch")
    region = _loop_of_list(code, statement, name)
    for flat in ("", ".flatten()"):
        changes = Changes(code)
        kept_on_gpu(changes, value, ints=counts(code, value))
        read = f"torch.stack({name}){flat}.tolist()"
        _read_list(changes, statement, region, name, read)
        yield changes


def _loop_of_list(code: Code, statement: cst.CSTNode, name: str) -> Loop:
    scope = code.scope(statement)
    starts = [v for v in code.assigned(name, scope) if _is_empty(v)]
    clear(len(starts) == 1, f"it is not clear where {name} begins")
    others = [loop for loop in code.loops(statement) if not code.is_in(starts[0], loop)]
    clear(others, f"{name} is not filled by a loop of this function")
    region = others[-1]
    clear(code.is_after(region, starts[0]), f"it is not clear where {name} begins")
    return region


def _is_empty(value: cst.BaseExpression) -> bool:
    return m.matches(value, m.List(elements=[]) | m.Call(func=m.Name("list"), args=[]))


def _read_list(
    changes: Changes,
    statement: cst.CSTNode,
    region: Loop,
    name: str,
    read: str,
) -> None:
    code = changes.code
    scope = code.scope(statement)
    starts = [name for name, _ in code.bound(name, scope)]
    for use in code.names(name, scope):
        above = code.parent(use)
        is_start = use in starts and code.is_after(region, use)
        is_counted = m.matches(code.parent(above), m.Call(func=m.Name("len")))
        if (
            code.is_in(use, statement)
            or is_start
            or (is_counted and code.scope(use) is scope)
        ):
            continue
        _clear_of_others(code, use, scope, region, name)
        clear(
            not code.is_after(region, use),
            f"line {code.line(use)} fills {name} before the loop",
        )
        if code.is_in(use, region):
            is_changed = isinstance(above, cst.Attribute)
            clear(
                not is_changed, f"line {code.line(use)} does something else with {name}"
            )
            _clear_of_each_turn(code, use, region, name)
            changes.put(use, cst.parse_expression(read))
    changes.after(region, f"{name} = {read} if {name} else []")


def copied_at_end(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``kept.append(x.cpu())``: copy all of them at once, where they are joined."""
    pattern = "{kept}.append({x}.cpu())"
    found = next(
        (f for c in code.calls(statement, "append") if (f := found_by(pattern, c))),
        None,
    )
    if found is None or not isinstance(found["kept"], cst.Name):
        return
    name, changes = found["kept"].value, Changes(code)
    region = _loop_of_list(code, statement, name)
    joins = m.Call(m.Attribute(m.Name("torch"), m.Name("cat") | m.Name("stack")))
    for above in code.looked_at(name, statement):
        call = code.parent(above)
        if not code.is_in(above, statement):
            is_joined = isinstance(above, cst.Arg) and m.matches(call, joins)
            clear(
                is_joined and code.is_after(call, region), f"{name} is more than joined"
            )
            changes.swap(call, "{joined}.cpu()", joined=call)
    kept = (
        found["x"]
        if is_fresh(code, found["x"])
        else filled("{x}.clone()", x=found["x"])
    )
    changes.put(next(iter(code.calls(statement, "cpu"))), kept)
    yield changes
