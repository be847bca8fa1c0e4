"""Calls that wait, by others of the same result that do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import libcst as cst
from libcst import matchers as m

from .code import (
    Changes,
    Code,
    called,
    clear,
    filled,
    found_by,
    is_number,
    keyword,
    owner,
    without,
)
from .reads import written


_CLOCKS: Final = re.compile(r"\b(?:time|perf_counter|monotonic|elapsed_time|timeit)\b")
_ASYNC: Final = re.compile(r"non_blocking|cuda\.(?:stream|Stream|graph)\b|async_op")

LATE: Final = "the run ends some operations later, with an error of the GPU"


def without_call(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``torch.cuda.synchronize()``: nothing in its place."""
    block: Any = code.parent(statement)
    is_call = m.matches(statement, m.SimpleStatementLine(body=[m.Expr(m.Call())]))
    if not is_call or not isinstance(block, cst.Module | cst.IndentedBlock):
        return
    if code.calls(statement, "synchronize"):
        nearby = code.text(code.scope(statement))
        clear(not _CLOCKS.search(nearby), "a clock of the function may need the wait")
        clear(
            not _ASYNC.search(code.module.code), "copies or streams may need the wait"
        )
    following = block.body[[id(s) for s in block.body].index(id(statement)) + 1 :]
    also = [s for s in following[:1] if code.calls(s, "collect")]
    for removed in ([statement, *also], [statement])[not also :]:
        changes = Changes(code)
        for each in removed:
            changes.remove(each)
        yield changes


def fused_optimizer(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``scaler.step(optimizer)`` reads nothing of a fused optimizer."""
    calls = code.all(code.module, cst.Call)
    every = [
        call for call in calls if called(call) in {"Adam", "AdamW", "SGD", "Adagrad"}
    ]
    names = {n.value for n in code.variables(statement)}
    named = [
        v for name in names for v in code.assigned(name, code.module) if v in every
    ]
    made = named or every
    clear(len(made) == 1, "it is not clear where the optimizer is made")
    kinds = ("fused", "foreach", "capturable", "differentiable")
    clear(
        not any(keyword(made[0], kind) for kind in kinds), "the optimizer has its kind"
    )
    yield Changes(code).add(made[0], fused="True")


def checked_norm(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``clip_grad_norm_(error_if_nonfinite=True)``: let the GPU check the norm."""
    for call in code.calls(statement, "clip_grad_norm_"):
        target: Any = code.parent(call)
        is_named = m.matches(target, m.Assign(targets=[m.AssignTarget(m.Name())]))
        clear(
            is_named or isinstance(target, cst.Expr),
            "it is not clear where its norm goes",
        )
        name = code.text(target.targets[0].target) if is_named else code.unused("norm")
        changes, bare = Changes(code), without(call, "error_if_nonfinite")
        named = cst.Assign([cst.AssignTarget(cst.Name(name))], bare)
        changes.put(call if is_named else target, bare if is_named else named)
        changes.after(statement, f"torch._assert_async({name}.isfinite())")
        changes.says = LATE
        yield changes


def asserted_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``assert x.isfinite().all()``, and ``if``, that raises: let the GPU check it."""
    raises = m.IndentedBlock([m.SimpleStatementLine([m.Raise()])])
    given: Any = statement
    if m.matches(given, m.If(body=raises, orelse=None)):
        template, asked = "torch._assert_async(~{test})", given.test
    elif m.matches(given, m.SimpleStatementLine([m.Assert()])):
        template, asked = "torch._assert_async({test})", given.body[0].test
    else:
        return
    if called(asked) == "item":
        asked = owner(asked)
    checks = {"all", "any", "isfinite", "isnan", "isinf"}
    clear(called(asked) in checks, "it is not clear that one tensor is asked")
    check = cst.Expr(filled(template, test=asked))
    changes = Changes(code)
    changes.put(
        given, cst.SimpleStatementLine([check], leading_lines=given.leading_lines)
    )
    changes.says = LATE
    yield changes


def printed_sometimes(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``print(loss)`` in each step: print it in every tenth one."""
    is_print = m.SimpleStatementLine([m.Expr(m.Call(func=m.Name("print")))])
    loop: Any = next(iter(code.loops(statement)), None)
    if loop is None or not m.matches(statement, is_print):
        return
    first = m.Tuple([m.Element(m.Name()), m.AtLeastN(n=1)])
    numbers = m.Call(m.Name("range"), args=[m.Arg()])
    taken = code.assigned(code.text(loop.iter), code.module) or [loop.iter]
    ranged = m.matches(loop.target, m.Name()) and all(
        m.matches(t, numbers) for t in taken
    )
    counted = m.matches(loop, m.For(first, m.Call(m.Name("enumerate"))))
    clear(ranged or counted, "the loop counts no steps")
    step = code.text(next(code.all(loop.target, cst.Name)))
    guard: Any = cst.parse_statement(f"if {step} % 10 == 0:\n    pass")
    inner: Any = statement
    body = cst.IndentedBlock([inner.with_changes(leading_lines=())])
    changes = Changes(code)
    changes.put(inner, guard.with_changes(body=body, leading_lines=inner.leading_lines))
    changes.says = "prints every 10th step, not each"
    yield changes


def on_cpu(code: Code, tensor: Any) -> Any:
    """Return the tensor of the CPU that a name is the copy of."""
    values = code.assigned(code.text(tensor), code.module)
    moved = m.Call(m.Attribute(m.Name(), m.Name("to") | m.Name("cuda")))
    is_moved = len(values) == 1 and m.matches(values[0], moved)
    clear(is_moved, "it is not clear what its values are on the CPU")
    twin = owner(values[0])
    is_one = len(code.assigned(twin.value, code.module)) == 1
    changed = any(written(n.value, code.module) for n in (tensor, twin))
    clear(is_one and not changed, f"{twin.value} has other values")
    return twin


def unchecked_distribution(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``Normal(mean, std)``: leave out the check of what it is given."""
    for name in code.variables(statement):
        values = code.assigned(name.value, code.scope(name))
        for made in [code.parent(name), *values]:
            kind = m.MatchRegex(r"[A-Z][a-z]+\w*\Z")
            is_made = m.matches(
                made, m.Call(m.Name(kind) | m.Attribute(attr=m.Name(kind)))
            )
            if is_made and not keyword(
                cst.ensure_type(made, cst.Call), "validate_args"
            ):
                changes = Changes(code).add(
                    cst.ensure_type(made, cst.Call), validate_args="False"
                )
                changes.says = "a distribution of invalid values raises no error"
                yield changes


def known_size(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``repeat_interleave(x, n)``: pass ``output_size``, of the counts on the CPU."""
    for call in code.calls(statement, "repeat_interleave"):
        at = 1 if m.matches(call.func, m.Attribute(m.Name("torch"))) else 0
        repeats = keyword(call, "repeats") or call.args[at]
        twin = on_cpu(code, repeats.value)
        yield Changes(code).add(call, output_size=f"int({twin.value}.sum())")


def read_from_cpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``sizes.tolist()``: read the tensor of the CPU that it is the copy of."""
    for call in code.calls(statement, "tolist|max|cpu|item|sum"):
        if isinstance(owner(call), cst.Name):
            yield Changes(code).swap(
                owner(call), "{twin}", twin=on_cpu(code, owner(call))
            )


def reduced_with_mask(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``x[mask].sum()``: choose by the mask, and keep the shape."""
    for call in code.calls(statement, "sum|mean"):
        chosen = owner(call) or call
        found = found_by("{x}[{mask}]", chosen) or found_by(
            "{x}.masked_select({mask})", chosen
        )
        if found is None or call.args:
            continue
        x, mask = found["x"], found["mask"]
        values = (
            code.assigned(mask.value, code.module)
            if isinstance(mask, cst.Name)
            else [mask]
        )
        with_number = m.Comparison(
            comparisons=[m.ComparisonTarget(comparator=m.Integer() | m.Float())]
        )
        is_whole = [m.matches(v, with_number) and v.left.deep_equals(x) for v in values]
        # What has another shape raises there, and is not broadcast.
        given = (
            mask
            if is_whole and all(is_whole)
            else filled("{mask}.reshape({x}.shape)", **found)
        )
        mean = " / {mask}.sum()" if called(call) == "mean" else ""
        yield Changes(code).swap(
            call, f"torch.where({{given}}, {{x}}, 0).sum(){mean}", given=given, **found
        )


def put_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``x[0] = 5.0``, ``x[mask] = y[mask]``: let the GPU write the numbers."""
    for target, value in code.bound_by(statement):
        put, taken = found_by("{x}[{i}]", target), found_by("{y}[{i}]", value) or {}
        changes, assign = Changes(code), code.parent(code.parent(target))
        if put is None:
            continue
        if taken and put["i"].deep_equals(taken["i"]):
            template = "{x}.copy_(torch.where({i}.reshape({x}.shape), {y}, {x}))"
            changes.put(assign, cst.Expr(filled(template, y=taken["y"], **put)))
            yield changes
        elif is_number(value) and isinstance(put["i"], cst.Integer):
            changes.put(assign, cst.Expr(filled("{x}[{i}].fill_({n})", n=value, **put)))
            yield changes
        elif is_number(value):
            yield changes.swap(value, "{x}.new_full((), {n})", n=value, **put)


def stacked_checks(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``all(f(p) for p in xs)``: join what is checked on the GPU, and read once."""
    for call in code.calls(statement, "all|any"):
        each = call.args[0].value if m.matches(call.func, m.Name()) else None
        if isinstance(each, cst.GeneratorExp):
            checks = cst.ListComp(each.elt, each.for_in)
            yield Changes(code).swap(
                call, f"bool(torch.stack({{checks}}).{called(call)}())", checks=checks
            )


def chosen_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``if x > 0: y = a``, ``else: y = b``: choose with ``torch.where``."""
    given: Any = statement
    one = m.IndentedBlock(
        [
            m.SimpleStatementLine(
                [m.Assign([m.AssignTarget(m.Name())], m.BinaryOperation())]
            )
        ]
    )
    if m.matches(given, m.If(test=m.Comparison(), body=one, orelse=m.Else(one))):
        (yes, a), (no, b) = (
            next(code.bound_by(part)) for part in (given.body, given.orelse.body)
        )
        clear(
            yes.deep_equals(no) and not code.calls(given.body.body[0], ".*"),
            "the branches do other things",
        )
        choice = filled("torch.where({test}, {a}, {b})", test=given.test, a=a, b=b)
        line = cst.Assign([cst.AssignTarget(cst.Name(code.text(yes)))], choice)
        changes = Changes(code)
        changes.put(
            given, cst.SimpleStatementLine([line], leading_lines=given.leading_lines)
        )
        yield changes


def waits_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``stream.synchronize()``: let the GPU wait, and not the CPU."""
    for call in code.calls(statement, "synchronize"):
        values = code.assigned(code.text(owner(call)), code.module)
        kinds = {called(value) for value in values}
        clear(kinds in ({"Stream"}, {"Event"}), "it is not clear what is waited for")
        nearby = code.text(code.scope(statement))
        unsafe = _CLOCKS.search(nearby) or "non_blocking" in code.module.code
        clear(not unsafe, "a clock or a copy may need the wait")
        template = f"torch.cuda.current_stream().wait_{kinds.pop().lower()}({{it}})"
        yield Changes(code).swap(call, template, it=owner(call))


def numbers_of_loop(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``for i in places: x[i]``: read all places once, before the loop."""
    for loop in code.loops(statement):
        target = loop.target if isinstance(loop, cst.For) else None
        if isinstance(loop, cst.For) and isinstance(target, cst.Name):
            at = code.looked_at(target.value, loop)
            parts = [
                code.parent(code.parent(place))
                for place in at
                if isinstance(place, cst.Index)
            ]
            is_index = len(parts) == len(at) and all(
                _is_read(code, part, {}) for part in parts
            )
            clear(at and is_index, f"{target.value} is more than an index")
            yield Changes(code).swap(loop.iter, "{places}.tolist()", places=loop.iter)


Parts = Mapping[str, Any]
Fits = Callable[[Code, cst.CSTNode, Parts], bool]


def swapped(code: Code, statement: cst.CSTNode, rule: str) -> Iterator[Changes]:
    """Put one expression for another, of the table ``SWAPS``."""
    for pattern, template, fits, says in SWAPS.get(rule, ()):
        for node in code.all(statement, cst.BaseExpression):  # type: ignore[type-abstract]
            parts = found_by(pattern, node)
            if (
                parts is not None
                and code.statement(node) is statement
                and fits(code, node, parts)
            ):
                changes = Changes(code).swap(node, template, **parts)
                changes.says = says
                yield changes


def _any(_code: Code, _node: cst.CSTNode, _parts: Parts) -> bool:
    return True


def _is_plain(code: Code, _: cst.CSTNode, parts: Parts) -> bool:
    """Whether no part does more if it is computed twice."""
    return not any(code.calls(part, "(?!abs|mean|exp).*") for part in parts.values())


def _is_of_number(_: Code, __: cst.CSTNode, parts: Parts) -> bool:
    return is_number(parts["n"])


def _is_added(code: Code, node: cst.CSTNode, _: Parts) -> bool:
    return m.matches(code.parent(node), m.AugAssign(operator=m.AddAssign()))


def _is_read(code: Code, part: cst.CSTNode, parts: Parts) -> bool:
    """Whether what an index chooses goes into a formula, and nobody keeps it."""
    is_name = isinstance(parts.get("i", cst.Name("i")), cst.Name)
    return is_name and isinstance(
        code.parent(part), cst.BinaryOperation | cst.Comparison
    )


_SCATTERED: Final = (
    "torch.zeros({n}, dtype=torch.long, device={x}.device)"
    ".scatter_add_(0, {x}, torch.ones_like({x}))"
)
_SINGULAR: Final = "a matrix without a solution raises no error"

SWAPS: Final[Mapping[str, Sequence[tuple[str, str, Fits, str]]]] = {
    "unique": (
        ("torch.bincount({x}, minlength={n})", _SCATTERED, _is_plain, ""),
        ("{x}.bincount(minlength={n})", _SCATTERED, _is_plain, ""),
    ),
    "positions": (
        ("{x}.nonzero().size(0)", "{x}.count_nonzero()", _is_added, ""),
        ("{x}.nonzero().shape[0]", "{x}.count_nonzero()", _is_added, ""),
        ("len({x}.nonzero())", "{x}.count_nonzero()", _is_added, ""),
    ),
    "index": (("{x}[{i}]", "{x}.index_select(0, {i}[None])[0]", _is_read, ""),),
    "python-max": (
        ("max({a}, {n})", "{a}.clamp(min={n})", _is_of_number, ""),
        ("min({a}, {n})", "{a}.clamp(max={n})", _is_of_number, ""),
        ("max({a}, {b})", "torch.maximum({a}, {b})", _any, ""),
        ("min({a}, {b})", "torch.minimum({a}, {b})", _any, ""),
    ),
    "normal": (
        ("torch.normal({a}, {s})", "{a} + {s} * torch.randn_like({s})", _is_plain, ""),
    ),
    "linalg-check": (
        ("torch.linalg.inv({x})", "torch.linalg.inv_ex({x})[0]", _any, _SINGULAR),
        (
            "torch.linalg.cholesky({x})",
            "torch.linalg.cholesky_ex({x})[0]",
            _any,
            _SINGULAR,
        ),
    ),
    "mask": (
        ("{x}.masked_fill({k}, {v})", "torch.where({k}, {v}, {x})", _is_plain, ""),
    ),
    "tensor-of-tensors": (
        ("torch.tensor({l}, device={d})", "torch.stack({l}).detach()", _any, ""),
    ),
    "constant": (("{x}.new_tensor({n})", "{x}.new_full((), {n})", _is_of_number, ""),),
}
"""By remedy: an expression, what takes its place, where, and what a reader sees of it."""
