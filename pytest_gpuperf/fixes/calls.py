"""Calls that wait, by others of the same result that do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import libcst as cst
from libcst import matchers as m

from .code import (
    Changes,
    Code,
    called,
    clear,
    found_by,
    is_number,
    is_torch,
    keyword,
    owner,
    without,
)
from .reads import written


Fits = Callable[[Code, Any, Mapping[str, Any]], bool]
"""Whether a pattern fits *code* at a node whose parts it names."""


def _is_of_same(code: Code, _: Any, parts: Mapping[str, Any]) -> bool:
    """Whether a mask compares the tensor of which it chooses with a number."""
    x, mask = parts["x"], parts["mask"]
    values = code.defined(code.text(mask)) or [mask]
    number = m.ComparisonTarget(comparator=m.Integer() | m.Float())
    compares = m.Comparison(comparisons=[number])
    return all(m.matches(v, compares) and v.left.deep_equals(x) for v in values)


def _is_place(code: Code, node: Any, parts: Mapping[str, Any]) -> bool:
    """Whether a row is only computed with, and its place never negative."""
    places = code.defined(code.text(parts["i"]))
    is_read = m.matches(code.parent(node), m.BinaryOperation() | m.Comparison())
    return is_read and bool(places) and all(called(p) in _PLACES for p in places)


_PLACES: Final = frozenset({"argmax", "argmin", "randint", "multinomial"})

_TRUTH: Final = m.If() | m.UnaryOperation(operator=m.Not()) | m.Assert()

_NAMED: Final = m.Name() | m.Attribute(m.Name())

_FITS: Final[Mapping[str, Fits]] = {
    "any": lambda *_: True,
    "name": lambda _, __, parts: m.matches(parts.get("s", parts.get("x")), _NAMED),
    "truth": lambda code, node, _: m.matches(code.parent(node), _TRUTH),
    "number": lambda _, __, parts: is_number(parts["n"]),
    "of-same": _is_of_same,
    "place": _is_place,
}

SWAPS: Final = """
unique | name | torch.bincount({x}, minlength={n}) | torch.zeros({n}, dtype=torch.long, device={x}.device).scatter_add_(0, {x}, torch.ones_like({x}))
python-max | number | max({a}, {n}) | {a}.clamp(min={n})
python-max | number | min({a}, {n}) | {a}.clamp(max={n})
python-max | any | max({a}, {b}) | torch.maximum({a}, {b}) | a NaN is the result, and equal values share the gradient
python-max | any | min({a}, {b}) | torch.minimum({a}, {b}) | a NaN is the result, and equal values share the gradient
normal | name | torch.normal({a}, {s}) | {a} + {s} * torch.randn_like({s})
linalg-check | any | torch.linalg.inv({x}) | torch.linalg.inv_ex({x})[0] | a matrix without an inverse raises no error
linalg-check | any | torch.linalg.cholesky({x}) | torch.linalg.cholesky_ex({x})[0] | a matrix that is not positive raises no error
distribution-check | any | Normal({a}, {s}) | Normal({a}, {s}, validate_args=False) | a distribution of invalid values raises no error
distribution-check | any | Categorical({x}) | Categorical({x}, validate_args=False) | a distribution of invalid values raises no error
distribution-check | any | Categorical(logits={x}) | Categorical(logits={x}, validate_args=False) | a distribution of invalid values raises no error
made-on-cpu | any | {x}.copy_(torch.zeros({s})) | {x}.zero_()
made-on-cpu | any | {x}.copy_(torch.ones({s})) | {x}.fill_(1)
checks-of-each | truth | all({c} for {p} in {all}) | torch.stack([{c} for {p} in {all}]).all()
checks-of-each | truth | any({c} for {p} in {all}) | torch.stack([{c} for {p} in {all}]).any()
read-number|kept-number | any | [{c}.item() for {p} in {m}.parameters()] | torch.stack([{c} for {p} in {m}.parameters()]).tolist()
checks-of-each | any | all({c} for {p} in {all}) | bool(torch.stack([{c} for {p} in {all}]).all())
checks-of-each | any | any({c} for {p} in {all}) | bool(torch.stack([{c} for {p} in {all}]).any())
mask | of-same | {x}[{mask}].sum() | torch.where({mask}, {x}, 0).sum()
mask | any | {x}[{mask}].sum() | torch.where({mask}.reshape({x}.shape), {x}, 0).sum()
mask | of-same | {x}[{mask}].mean() | torch.where({mask}, {x}, 0).sum() / {mask}.sum()
mask | any | {x}[{mask}].mean() | torch.where({mask}.reshape({x}.shape), {x}, 0).sum() / {mask}.sum()
mask | any | {x}.masked_select({mask}).sum() | torch.where({mask}, {x}, 0).sum()
mask | any | {x}.masked_fill({k}, {v}) | torch.where({k}, {v}, {x})
mask|put-number|copy-to-gpu | any | {x}[{i}] = {y}[{i}] | {x}.copy_(torch.where({i}.reshape({x}.shape), {y}, {x}))
mask|put-number|copy-to-gpu | number | {x}[0] = {n} | {x}[0].fill_({n})
mask|put-number|copy-to-gpu | number | {x}[{i}] = {n} | {x}[{i}] = {x}.new_full((), {n})
index | place | {x}[{i}] | {x}.index_select(0, {i}[None])[0]
tensor-of-tensors | any | torch.tensor({l}, device={d}) | torch.stack({l}).detach()
constant | number | {x}.new_tensor({n}) | {x}.new_full((), {n})
"""
"""By remedy: where, which code, what takes its place, and what a reader sees of it."""


def swapped(code: Code, statement: Any, rule: str) -> Iterator[Changes]:
    """Put one expression or statement for another, of the table."""
    for row in SWAPS.strip().split("\n"):
        rules, fits, pattern, template, says = [*row.split(" | "), ""][:5]
        for node in code.nodes(statement) if re.fullmatch(rules, rule) else ():
            parts = found_by(node, pattern)
            is_here = parts is not None and code.statement(node) is statement
            if parts is not None and is_here and _FITS[fits](code, node, parts):
                yield Changes(code, says).swap(node, template, **parts)


_CLOCKS: Final = re.compile(r"(?i)time[ .(ir]|elapsed|profil|\btoc\b")
_ASYNC: Final = re.compile(r"non_blocking|cuda\.(?:stream|Stream|graph)\b|async_op")
LATE: Final = "the run ends some operations later, with an error of the GPU"


def without_call(code: Code, statement: Any) -> Iterator[Changes]:
    """``torch.cuda.synchronize()``: nothing in its place."""
    block: Any = code.parent(statement)
    is_call = m.matches(statement, m.SimpleStatementLine([m.Expr(m.Call())]))
    if not is_call or not isinstance(block, cst.Module | cst.IndentedBlock):
        return
    if code.calls(statement, "synchronize"):
        clear(not _CLOCKS.search(code.module.code), "a clock may need the wait")
        clear(not _ASYNC.search(code.module.code), "copies or streams may need it")
        tried = any(isinstance(above, cst.Try) for above in code.around(statement))
        clear(not tried, "an error of the GPU may be caught here")
    following = code.following(statement)
    also = [s for s in following[:1] if code.calls(s, "collect")]
    for removed in ([statement, *also], [statement])[not also :]:
        changes = Changes(code)
        yield [changes.remove(each) for each in removed][-1]


def fused_optimizer(code: Code, statement: Any) -> Iterator[Changes]:
    """``scaler.step(optimizer)`` reads nothing of a fused optimizer."""
    made = code.made_by("Adam|AdamW|SGD", statement)
    kinds = ("fused", "foreach", "capturable", "differentiable")
    is_chosen = any(keyword(made, kind) for kind in kinds)
    clear(not is_chosen, "the optimizer has its kind")
    yield Changes(code).add(made, "fused", "True")


def checked_norm(code: Code, statement: Any) -> Iterator[Changes]:
    """``clip_grad_norm_(error_if_nonfinite=True)``: let the GPU check the norm."""
    for call in code.calls(statement, "clip_grad_norm_"):
        target: Any = code.parent(call)
        is_named = m.matches(target, m.Assign([m.AssignTarget(m.Name())]))
        clear(is_named or isinstance(target, cst.Expr), "its norm goes elsewhere")
        norm = target.targets[0].target.value if is_named else code.unused("norm")
        bare = without(call, "error_if_nonfinite")
        changes = Changes(code, LATE).swap(statement, f"{norm} = {{bare}}", bare=bare)
        yield changes.after(statement, f"torch._assert_async({norm}.isfinite())")


_RAISES: Final = (
    "if not {good}:\n raise {e}",
    "if {bad}:\n raise {e}",
    "assert {good}",
    "assert {good}, {e}",
)


def asserted_on_gpu(code: Code, statement: Any) -> Iterator[Changes]:
    """``assert x.isfinite().all()``, and ``if``, that raises: let the GPU check it."""
    found = found_by(statement, *_RAISES)
    if found is None:
        return
    x: Any = found.get("bad", found.get("good"))
    x = owner(x) if called(x) == "item" else x
    is_one = called(x) in {"all", "any", "isfinite", "isnan", "isinf"}
    clear(is_one, "it is not clear that one tensor is asked")
    no = "~" if "bad" in found else ""
    yield Changes(code, LATE).swap(statement, f"torch._assert_async({no}{{x}})", x=x)


def printed_sometimes(code: Code, statement: Any) -> Iterator[Changes]:
    """``print(loss)`` in each step: print it in every tenth one."""
    is_print = m.SimpleStatementLine([m.Expr(m.Call(m.Name("print")))])
    loop: Any = next(iter(code.loops(statement)), None)
    if loop is None or not m.matches(statement, is_print):
        return
    first = m.Tuple([m.Element(m.Name()), m.AtLeastN(n=1)])
    taken = code.defined(code.text(loop.iter)) or [loop.iter]
    has_one = m.matches(loop.target, m.Name())
    ranged = has_one and all(found_by(each, "range({n})") for each in taken)
    counted = m.matches(loop, m.For(first, m.Call(m.Name("enumerate"))))
    clear(ranged or counted, "the loop counts no steps")
    step = next(code.all(loop.target, cst.Name)).value
    guard: Any = cst.parse_statement(f"if {step} % 10 == 0:\n    pass")
    body = cst.IndentedBlock([statement.with_changes(leading_lines=())])
    lines = statement.leading_lines
    guarded = guard.with_changes(body=body, leading_lines=lines)
    yield Changes(code, "prints every 10th step, not each").put(statement, guarded)


def on_cpu(code: Code, tensor: Any) -> Any:
    """Return the tensor of the CPU that a name is the copy of."""
    values = code.defined(code.text(tensor))
    moved = m.Call(m.Attribute(m.Name(), m.Name("to") | m.Name("cuda")))
    is_moved = len(values) == 1 and m.matches(values[0], moved)
    clear(is_moved, "it is not clear what its values are on the CPU")
    twin = owner(values[0])
    is_one = len(code.defined(twin.value)) == 1
    changed = any(written(n.value, code.module) for n in (tensor, twin))
    clear(is_one and not changed, f"{twin.value} has other values")
    return twin


def known_size(code: Code, statement: Any) -> Iterator[Changes]:
    """``repeat_interleave(x, n)``: pass ``output_size``, of the counts on the CPU."""
    for call in code.calls(statement, "repeat_interleave"):
        repeats = keyword(call, "repeats") or call.args[is_torch(call)]
        twin = on_cpu(code, repeats.value)
        yield Changes(code).add(call, "output_size", f"int({twin.value}.sum())")


def read_from_cpu(code: Code, statement: Any) -> Iterator[Changes]:
    """``sizes.tolist()``: read the tensor of the CPU that it is the copy of."""
    for call in code.calls(statement, "tolist|max|cpu|item|sum"):
        if isinstance(owner(call), cst.Name):
            twin = on_cpu(code, owner(call))
            yield Changes(code).swap(owner(call), "{twin}", twin=twin)


def numbers_of_loop(code: Code, statement: Any) -> Iterator[Changes]:
    """``for i in places: x[i]``: read all places once, before the loop."""
    for loop in code.loops(statement):
        if isinstance(loop, cst.For) and isinstance(loop.target, cst.Name):
            at = code.looked_at(loop.target.value, loop)
            read = m.BinaryOperation() | m.Comparison()
            above = [[*code.around(i)][2] for i in at if isinstance(i, cst.Index)]
            is_index = len(above) == len(at) and all(m.matches(n, read) for n in above)
            clear(at and is_index, f"{loop.target.value} is more than an index")
            yield Changes(code).swap(loop.iter, "{places}.tolist()", places=loop.iter)
