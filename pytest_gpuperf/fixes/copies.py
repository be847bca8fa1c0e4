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
    is_number,
    is_torch,
    keyword,
    owner,
    with_argument,
    without,
)
from .reads import written


_SAME: Final = "zeros|ones|full|empty|eye|arange|linspace"
_TENSOR: Final = "tensor|as_tensor"
_ANY: Final = f"{_SAME}|{_TENSOR}|rand|randn|randint|randperm"


def moves(code: Code, statement: cst.CSTNode) -> Iterator[tuple[cst.Call, Any]]:
    """Yield the calls of a statement that copy to a device alone, and the device."""
    for call in code.calls(statement, "to|cuda"):
        places = [
            a for a in call.args if a.keyword is None or a.keyword.value == "device"
        ]
        others = {a.keyword.value for a in call.args if a.keyword and a not in places}
        if called(call) == "cuda" and not call.args:
            yield call, cst.SimpleString('"cuda"')
        elif called(call) == "to" and len(places) == 1 and others <= {"non_blocking"}:
            yield call, places[0].value


def made(
    code: Code, statement: cst.CSTNode, names: str
) -> Iterator[tuple[cst.Call, cst.Call, Any]]:
    """Yield what makes a tensor on a device of one of the CPU, that, and the device."""
    for move, device in moves(code, statement):
        maker = owner(move)
        own = is_torch(maker) and any(
            keyword(maker, n) for n in ("device", "pin_memory", "out")
        )
        if is_torch(maker) and re.fullmatch(names, called(maker)) and not own:
            yield move, maker, device
    for call in code.calls(statement, _TENSOR if names != _SAME else "-"):
        if is_torch(call) and keyword(call, "device"):
            yield call, without(call, "device"), keyword(call, "device").value


def made_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``torch.zeros(8).to(device)``: ``torch.zeros(8, device=device)``."""
    for whole, maker, device in made(code, statement, _SAME):
        changes = Changes(code)
        changes.put(whole, with_argument(maker, "device", code.text(device)))
        yield changes


def pinned(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``torch.tensor(values, device=device)``: copy it from pinned memory."""
    for whole, maker, device in made(code, statement, _ANY):
        value = maker.args[0].value
        if called(maker) == "tensor" and len(maker.args) == 1 and is_number(value):
            template = "torch.full((), {number}, device={device})"
            yield Changes(code).swap(whole, template, number=value, device=device)
        # as_tensor() has no pin_memory.
        function = f"torch.{called(maker).removeprefix('as_')}"
        by_name = maker.with_changes(func=cst.parse_expression(function))
        copied = with_argument(by_name, "pin_memory", "True")
        template = "{maker}.to({device}, non_blocking=True)"
        yield Changes(code).swap(whole, template, maker=copied, device=device)


_PURE: Final = re.compile(
    r"abs|enumerate|float|int|len|list|math|max|min|pow|range|sum|torch|tuple|zip"
)


def made_once(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``x * torch.tensor([1, 2]).to(device)``: make it before the loop."""
    for whole, maker, _ in made(code, statement, _TENSOR):
        value, changes = maker.args[0].value, Changes(code)
        calls = (code.text(call.func) for call in code.all(value, cst.Call))
        clear(
            all(map(_PURE.match, calls)),
            "it is not clear whether its values are the same",
        )
        loop = _loop_without(code, whole, value)
        target = next((t for t, v in code.bound_by(statement) if v is whole), None)
        if isinstance(target, cst.Name):
            uses = code.looked_at(target.value, statement)
            clear(
                uses and all(_reads(code, use) for use in uses),
                f"{target.value} may be changed",
            )
            clear(
                len(code.assigned(target.value, code.scope(whole))) == 1,
                f"{target.value} is set elsewhere",
            )
            changes.before(loop, code.text(statement).strip())
            changes.remove(statement)
        else:
            clear(
                _reads(code, code.parent(whole)),
                "it is not clear whether it is changed",
            )
            name = code.unused("constant")
            changes.before(loop, f"{name} = {code.text(whole)}")
            changes.put(whole, cst.Name(name))
        yield changes


def _reads(code: Code, above: cst.CSTNode) -> bool:
    """Whether a formula or torch takes a tensor there, so that nobody keeps or changes it."""
    call = code.parent(above)
    function = m.Call(
        m.Attribute(m.Name("torch") | m.Name("F"), m.Name(m.MatchRegex(r"\w*[^_]\Z")))
    )
    is_argument = (
        isinstance(above, cst.Arg)
        and above.keyword is None
        and m.matches(call, function)
    )
    return is_argument or isinstance(
        above, cst.BinaryOperation | cst.Comparison | cst.Index
    )


def _loop_without(
    code: Code, whole: cst.CSTNode, value: cst.CSTNode | None = None
) -> Loop:
    """Return the outermost loop that leaves the variables of *whole* as they are.

    Nothing else in it may use those of *value*.
    """
    names = {n.value for n in code.variables(whole) if not _PURE.fullmatch(n.value)}
    of_value = {n.value for n in code.variables(value)} & names if value else set()
    fitting: list[Loop] = []
    for loop in code.loops(whole):
        used = [n for n in code.variables(loop) if n.value in names]
        others = any(n.value in of_value and not code.is_in(n, whole) for n in used)
        if (
            others
            or any(map(code.is_stored, used))
            or any(written(n, loop) for n in names)
        ):
            break
        fitting.append(loop)
    clear(fitting, "its values change, or its loop is in another function")
    known = [
        n for n in code.variables(code.module) if n.value in names and code.is_stored(n)
    ]
    is_before = all(
        code.is_after(fitting[-1], n)
        for n in known
        if code.scope(n) is code.scope(whole)
    )
    clear(
        is_before and names <= {n.value for n in known},
        "it is not clear what its values are",
    )
    return fitting[-1]


def both_ends(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``batch.to(device)`` of a DataLoader: pin it there, and do not wait for the copy."""
    for loop in code.loops(statement):
        loader = _loader(code, loop) if isinstance(loop, cst.For) else None
        if loader is None or not isinstance(loop, cst.For):
            continue
        batch = {n.value for n in code.variables(loop.target)}
        lines = code.all(loop.body, cst.SimpleStatementLine)
        copies = [
            move
            for move, _ in (move for line in lines for move in moves(code, line))
            if batch & {n.value for n in code.variables(owner(move))}
        ]
        clear(copies, "it is not the batch that is copied")
        changes = Changes(code)
        for move in copies:
            if not keyword(move, "non_blocking"):
                changes.add(move, non_blocking="True")
        if not keyword(loader, "pin_memory"):
            changes.add(loader, pin_memory="True")
        yield changes


def _loader(code: Code, loop: cst.For) -> cst.Call | None:
    """Return the call that makes the DataLoader of a loop."""
    every = [c for c in code.all(code.module, cst.Call) if called(c) == "DataLoader"]
    names = [n.value for n in code.variables(loop.iter)]
    named = [
        v for name in names for v in code.assigned(name, code.module) if v in every
    ]
    found = [c for c in every if code.is_in(c, loop.iter)] or named or every
    return found[0] if len(found) == 1 else None


def _indices(code: Code, statement: cst.CSTNode) -> Iterator[tuple[str, Any]]:
    """Yield the names that a statement indexes, and each index."""
    for part in code.all(statement, cst.Subscript):
        for place in part.slice:
            if isinstance(place.slice, cst.Index) and isinstance(part.value, cst.Name):
                yield part.value.value, place.slice.value


def index_once(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``x[order]``, ``x[:, [0, 2]]``: copy the index before the loop."""
    for name, index in _indices(code, statement):
        if not isinstance(index, cst.Name | cst.List):
            continue
        part = code.parent(code.parent(code.parent(index)))
        loop = _loop_without(code, part)
        changes = Changes(code)
        if isinstance(index, cst.List):
            new = code.unused("index")
            changes.before(
                loop, f"{new} = torch.tensor({code.text(index)}, device={name}.device)"
            )
            changes.put(index, cst.Name(new))
        else:
            _clear_of_more(code, index.value, statement)
            changes.before(loop, f"{index.value} = {index.value}.to({name}.device)")
        yield changes


def _clear_of_more(code: Code, name: str, statement: cst.CSTNode) -> None:
    uses = code.looked_at(name, statement)
    clear(
        all(isinstance(use, cst.Index) for use in uses), f"{name} is more than an index"
    )


def index_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``x[places]``: make the places on the GPU."""
    for name, index in _indices(code, statement):
        for maker in (
            code.assigned(index.value, code.scope(statement))
            if isinstance(index, cst.Name)
            else ()
        ):
            is_same = is_torch(maker) and re.fullmatch(_SAME, called(maker))
            clear(
                is_same and not keyword(maker, "device"),
                "its places are not made by torch",
            )
            _clear_of_more(code, index.value, statement)
            yield Changes(code).add(maker, device=f"{name}.device")


def buffer(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``self.scale.to(x.device)``: make it a buffer, which moves with the model."""
    for move, _ in moves(code, statement):
        attribute = owner(move)
        if not m.matches(attribute, m.Attribute(m.Name("self"))):
            continue
        model = next(
            (n for n in code.around(statement) if isinstance(n, cst.ClassDef)),
            code.module,
        )
        is_it = attribute.deep_equals
        made = [a for a in code.all(model, cst.Assign) if is_it(a.targets[0].target)]
        uses = [a for a in code.all(model, cst.Attribute) if is_it(a)]
        clear(
            [len(made), len(uses)] == [1, 2],
            "it is not clear what else uses the attribute",
        )
        name, changes = attribute.attr.value, Changes(code)
        template = f'self.register_buffer("{name}", {{value}}, persistent=False)'
        changes.put(made[0], cst.Expr(filled(template, value=made[0].value)))
        changes.put(move, attribute)
        yield changes


def pinned_class(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``batch.x.to(device)`` of a class: give it what DataLoader pins it by."""
    for move, _ in moves(code, statement):
        attribute = owner(move)
        loaders = [
            c for c in code.all(code.module, cst.Call) if called(c) == "DataLoader"
        ]
        clear(
            len(loaders) == 1 and m.matches(attribute, m.Attribute(m.Name())),
            "it is not clear which class it is",
        )
        collate, changes = keyword(loaders[0], "collate_fn"), Changes(code)
        made = code.text(collate.value) if collate else ""
        classes = [
            c for c in code.all(code.module, cst.ClassDef) if c.name.value == made
        ]
        clear(
            classes and "pin_memory" not in code.text(classes[0]),
            "it is not clear which class it is",
        )
        x = f"self.{attribute.attr.value}"
        method = f"def pin_memory(self):\n    {x} = {x}.pin_memory()\n    return self"
        changes.after(classes[0].body.body[-1], method, blank=1)
        if not keyword(loaders[0], "pin_memory"):
            changes.add(loaders[0], pin_memory="True")
        if not keyword(move, "non_blocking"):
            changes.add(move, non_blocking="True")
        yield changes


def moved_once(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``grid * rows.cuda()``: copy what no step changes before the loop."""
    for move, _ in moves(code, statement):
        if isinstance(owner(move), cst.Name):
            clear(
                _reads(code, code.parent(move)), "it is not clear whether it is changed"
            )
            loop, name = (
                _loop_without(code, move, owner(move)),
                code.unused(f"gpu_{owner(move).value}"),
            )
            changes = Changes(code)
            changes.before(loop, f"{name} = {code.text(move)}")
            changes.put(move, cst.Name(name))
            yield changes
