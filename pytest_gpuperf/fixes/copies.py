"""Tensors that are made on the CPU and copied: made on the GPU, once, or in pinned memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import libcst as cst
from libcst import matchers as m

from .code import (
    Changes,
    Code,
    Loop,
    called,
    clear,
    filled,
    found_by,
    is_number,
    is_torch,
    keyword,
    owner,
    with_argument,
    without,
)
from .reads import is_view, written


_SAME: Final = "zeros|ones|full|empty|eye|arange|linspace"
_TENSOR: Final = "tensor|as_tensor"
_ANY: Final = f"{_SAME}|{_TENSOR}|rand|randn|randint|randperm"


def moves(code: Code, statement: Any) -> Iterator[tuple[cst.Call, Any]]:
    """Yield the calls of a statement that copy to a device alone, and the device."""
    for call in code.calls(statement, "to|cuda"):
        others = [a for a in call.args if a is not keyword(call, "non_blocking")]
        if called(call) == "cuda" and not others:
            yield call, cst.SimpleString('"cuda"')
        elif called(call) == "to" and len(others) == 1:
            is_device = others[0].keyword is None or keyword(call, "device")
            is_dtype = m.matches(others[0].value, m.Attribute(m.Name("torch")))
            is_gpu = not is_dtype and "cpu" not in code.text(others[0].value)
            yield from [(call, others[0].value)] if is_device and is_gpu else []


Made = tuple[cst.Call, cst.Call, Any]
"""What makes a tensor on a device, of one that a call makes on the CPU, and the device."""


def made(code: Code, statement: Any, names: str) -> Iterator[Made]:
    """Yield what a statement makes on the CPU, by functions of these *names*, and copies."""
    for move, device in moves(code, statement):
        if _is_made(owner(move), names):
            yield move, owner(move), device
    for call in code.calls(statement, _TENSOR):
        if is_torch(call) and keyword(call, "device"):
            yield call, without(call, "device"), keyword(call, "device").value


def made_on_gpu(code: Code, statement: Any) -> Iterator[Changes]:
    """``torch.zeros(8).to(device)``: ``torch.zeros(8, device=device)``."""
    for move, device in moves(code, statement):
        parts = code.all(owner(move), cst.Call)
        made_here = [call for call in parts if _is_made(call, _SAME)]
        is_named = m.findall(owner(move), m.NamedExpr())
        if len(made_here) == 1 and not is_named:
            (maker,) = made_here
            on_gpu = with_argument(maker, "device", code.text(device))
            yield Changes(code).put(move, owner(move).deep_replace(maker, on_gpu))


def _is_made(call: Any, names: str) -> bool:
    """Whether a function of torch of these *names* makes a tensor on the CPU there."""
    if not is_torch(call) or not re.fullmatch(names, called(call)):
        return False
    return not any(keyword(call, name) for name in ("device", "pin_memory", "out"))


def pinned(code: Code, statement: Any) -> Iterator[Changes]:
    """``torch.tensor(values, device=device)``: copy it from pinned memory."""
    for whole, maker, device in made(code, statement, _ANY):
        value = maker.args[0].value
        if called(maker) == "tensor" and len(maker.args) == 1 and is_number(value):
            template = "torch.full((), {number}, device={device})"
            yield Changes(code).swap(whole, template, number=value, device=device)
        # as_tensor() has no pin_memory.
        function = f"torch.{called(maker).removeprefix('as_')}"
        by_name = maker.with_changes(func=cst.parse_expression(function))
        # Without a GPU nothing can be pinned, and torch raises.
        asks = "is_available" in code.module.code
        pin = "torch.cuda.is_available()" if asks else "True"
        copied = with_argument(by_name, "pin_memory", pin)
        template = "{maker}.to({device}, non_blocking=True)"
        yield Changes(code).swap(whole, template, maker=copied, device=device)


_PURE: Final = re.compile(
    r"abs|enumerate|float|int|len|list|math|max|min|pow|range|sum|torch|tuple|zip"
)


def made_once(code: Code, statement: Any) -> Iterator[Changes]:
    """``x * torch.tensor([1, 2]).to(device)``, ``x * rows.cuda()``: copy it before the loop."""
    makers = made(code, statement, _TENSOR)
    copies = [(whole, maker.args[0].value, "constant") for whole, maker, _ in makers]
    for move, x in [(move, owner(move)) for move, _ in moves(code, statement)]:
        copies += [(move, x, f"gpu_{x.value}")] if isinstance(x, cst.Name) else []
    for whole, value, name in copies:
        calls = (code.text(call.func) for call in code.all(value, cst.Call))
        clear(all(map(_PURE.match, calls)), "its values may differ")
        loop, changes = _loop_without(code, whole, value), Changes(code)
        targets = [t for t, v in code.bound_by(statement) if v is whole]
        target = targets[0] if len(targets) == 1 else None
        if isinstance(target, cst.Name):
            uses = code.looked_at(target.value, statement)
            is_read = uses and all(_reads(code, use) for use in uses)
            is_one = len(code.assigned(target.value, code.scope(whole))) == 1
            clear(is_read and is_one, f"{target.value} may be changed")
            text = code.text(statement).strip()
            yield changes.before(loop, text).remove(statement)
        else:
            clear(_reads(code, code.parent(whole)), "it may be changed")
            new = code.unused(name)
            changes.before(loop, f"{new} = {code.text(whole)}")
            yield changes.put(whole, cst.Name(new))


_FUNCTION: Final = m.Call(
    m.Attribute(m.Name("torch") | m.Name("F"), m.Name(m.MatchRegex(r"\w*[^_]\Z")))
    | m.Attribute(m.Name("nn"), m.Name(m.MatchRegex(r"\w+Loss\Z")))
)


def _reads(code: Code, above: Any) -> bool:
    """Whether a formula or torch takes a tensor there: nobody keeps or changes it."""
    if isinstance(above, cst.Arg):
        is_out = above.keyword is not None and above.keyword.value == "out"
        return not is_out and m.matches(code.parent(above), _FUNCTION)
    return isinstance(above, cst.BinaryOperation | cst.Comparison | cst.Index)


def _loop_without(code: Code, whole: cst.CSTNode, value: cst.CSTNode | None) -> Loop:
    """Return the outermost loop that leaves the variables of *whole* as they are.

    Nothing else in it may use those of *value*.
    """
    names = {name for name in code.words(whole) if not _PURE.fullmatch(name)}
    of_value = code.words(value) if value else set()
    views = [v for n in of_value for v in code.assigned(n, code.module) if is_view(v)]
    roots = {name for view in views for name in code.words(view)}
    is_kept = not any(written(name, code.module) for name in names | roots)
    clear(is_kept, "its values may change")
    fitting: list[Loop] = []
    for loop in code.loops(whole):
        used = [n for n in code.variables(loop) if n.value in names]
        others = [n for n in used if n.value in of_value and not code.is_in(n, whole)]
        changed = [n for n in used if code.is_stored(n)]
        if others or changed:
            break
        fitting.append(loop)
    clear(fitting, "its values change, or its loop is in another function")
    loop = fitting[-1]
    known = [n for w in names for n in code.names(w, code.module) if code.is_stored(n)]
    own = [n for n in known if code.scope(n) is code.scope(whole)]
    is_before = all(code.is_after(loop, n) for n in own)
    clear(is_before and names <= {n.value for n in known}, "its values are not known")
    return loop


_ELEMENTS: Final = ("{x}[{i}].item()", "float({x}[{i}])", "int({x}[{i}])")


def read_before_loop(code: Code, statement: Any) -> Iterator[Changes]:
    """``x[i].item()`` for each ``i``: read all of ``x`` before the loop."""
    for read in code.all(statement, cst.Call):
        found = found_by(read, *_ELEMENTS) or {}
        if all(isinstance(found.get(part), cst.Name) for part in "xi"):
            loops = (n for n in code.loops(statement) if isinstance(n, cst.For))
            turns = [code.words(each.target) for each in loops]
            x, i = found["x"].value, found["i"].value
            clear(
                any(i in names for names in turns), f"{i} may be the same in each step"
            )
            numbers = code.unused("numbers")
            loop = _loop_without(code, found["x"], found["x"])
            old = read if called(read) == "item" else read.args[0].value
            changes = Changes(code).before(loop, f"{numbers} = {x}.tolist()")
            yield changes.swap(old, "{n}[{i}]", n=cst.Name(numbers), i=found["i"])


def both_ends(code: Code, statement: Any) -> Iterator[Changes]:
    """``batch.to(device)`` of a DataLoader: pin it there, and do not wait for the copy."""
    for loop in code.loops(statement):
        if isinstance(loop, cst.For):
            batch = code.words(loop.target)
            for part in code.all(loop.body, cst.CompFor):
                if code.words(part.iter) & batch:
                    batch |= code.words(part.target)
            lines = code.all(loop.body, cst.SimpleStatementLine)
            all_moves = [move for line in lines for move, _ in moves(code, line)]
            # What a call returns may go elsewhere: nobody may read a copy too early.
            own = [c for c in all_moves if not [*code.all(owner(c), cst.Call)]]
            copies = [call for call in own if code.words(owner(call)) & batch]
            clear(copies, "it is not the batch of a loop that is copied")
            # The CPU must not write to a batch while it is copied.
            stored = {n.value for n in code.variables(loop.body) if code.is_stored(n)}
            is_written = any(written(name, loop.body) for name in batch - stored)
            clear(not is_written, "the CPU changes the batch")
            yield _unblocked(code, code.made_by("DataLoader", loop.iter), copies)


def _unblocked(code: Code, loader: cst.Call, copies: list[cst.Call]) -> Changes:
    changes = Changes(code)
    for copy in copies:
        if not keyword(copy, "non_blocking"):
            changes.add(copy, "non_blocking", "True")
    pin = keyword(loader, "pin_memory")
    if not pin:
        changes.add(loader, "pin_memory", "True")
    elif code.text(pin.value) == "False":
        changes.swap(pin.value, "True")
    return changes


def pinned_class(code: Code, statement: Any) -> Iterator[Changes]:
    """``batch.x.to(device)`` of a class: give it what DataLoader pins it by."""
    for move, _ in moves(code, statement):
        is_part = m.matches(owner(move), m.Attribute(m.Name()))
        loader = code.made_by("DataLoader", statement)
        collate = keyword(loader, "collate_fn")
        made = code.text(collate.value) if collate else ""
        classes: Any = m.findall(code.module, m.ClassDef(m.Name(made)))
        is_new = is_part and classes and "pin_memory" not in code.text(classes[0])
        clear(is_new, "it is not clear which class the batch is of")
        x = f"self.{owner(move).attr.value}"
        text = f"\ndef pin_memory(self):\n    {x} = {x}.pin_memory()\n    return self"
        yield _unblocked(code, loader, [move]).after(classes[0].body.body[-1], text)


def buffer(code: Code, statement: Any) -> Iterator[Changes]:
    """``self.scale.to(x.device)``: make it a buffer, which moves with the model."""
    for move, _ in moves(code, statement):
        attribute = owner(move)
        if m.matches(attribute, m.Attribute(m.Name("self"))):
            model = next(n for n in code.around(move) if isinstance(n, cst.ClassDef))
            same = attribute.deep_equals
            uses = [each for each in code.all(model, cst.Attribute) if same(each)]
            made = code.parent(code.parent(uses[0]))
            is_made = m.matches(made, m.Assign([m.AssignTarget()]))
            is_one = is_made and [*map(code.parent, uses[1:])] == [move.func]
            clear(is_one, "other lines use the attribute")
            name = f'"{attribute.attr.value}"'
            text = f"self.register_buffer({name}, {{value}}, persistent=False)"
            changes = Changes(code).put(move, attribute)
            yield changes.put(made, filled(text, value=made.value))


def _indices(code: Code, statement: Any) -> Iterator[tuple[cst.Subscript, Any]]:
    """Yield where a statement indexes a name, and by what."""
    for part in code.all(statement, cst.Subscript):
        for place in part.slice if isinstance(part.value, cst.Name) else ():
            if isinstance(place.slice, cst.Index):
                yield part, place.slice.value


def index_once(code: Code, statement: Any) -> Iterator[Changes]:
    """``x[order]``, ``x[:, [0, 2]]``: copy the index before the loop."""
    for part, index in _indices(code, statement):
        device, changes = f"{code.text(part.value)}.device", Changes(code)
        if isinstance(index, cst.List):
            new, loop = code.unused("index"), _loop_without(code, part, None)
            line = f"{new} = torch.tensor({code.text(index)}, device={device})"
            yield changes.before(loop, line).put(index, cst.Name(new))
        elif isinstance(index, cst.Name):
            _clear_of_more(code, index.value, statement)
            line = f"{index.value} = {index.value}.to({device})"
            yield changes.before(_loop_without(code, part, None), line)


def index_on_gpu(code: Code, statement: Any) -> Iterator[Changes]:
    """``x[places]``: make the places on the GPU."""
    for part, index in _indices(code, statement):
        for maker in code.assigned(code.text(index), code.scope(statement)):
            is_same = is_torch(maker) and re.fullmatch(_SAME, called(maker))
            clear(is_same and not keyword(maker, "device"), "torch does not make it")
            _clear_of_more(code, index.value, statement)
            yield Changes(code).add(maker, "device", f"{code.text(part.value)}.device")


def _clear_of_more(code: Code, name: str, statement: Any) -> None:
    uses = code.looked_at(name, statement)
    is_index = all(isinstance(use, cst.Index) for use in uses)
    clear(is_index, f"{name} is more than an index")
