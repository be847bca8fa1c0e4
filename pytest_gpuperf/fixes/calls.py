"""Calls that wait, by others of the same result that do not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import libcst as cst
from libcst import matchers as m

from .code import Changes, Code, called, clear, filled, keyword, owner, without


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
    ranged = m.For(m.Name(), iter=m.Call(m.Name("range"), args=[m.Arg()]))
    clear(
        m.matches(loop, ranged | m.For(first, m.Call(m.Name("enumerate")))),
        "the loop counts no steps",
    )
    step = code.text(next(code.all(loop.target, cst.Name)))
    guard: Any = cst.parse_statement(f"if {step} % 10 == 0:\n    pass")
    inner: Any = statement
    body = cst.IndentedBlock([inner.with_changes(leading_lines=())])
    changes = Changes(code)
    changes.put(inner, guard.with_changes(body=body, leading_lines=inner.leading_lines))
    changes.says = "prints every 10th step, not each"
    yield changes


def known_size(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``repeat_interleave(x, n)``: pass ``output_size``, of the counts on the CPU."""
    for call in code.calls(statement, "repeat_interleave"):
        at = 1 if m.matches(call.func, m.Attribute(m.Name("torch"))) else 0
        repeats = keyword(call, "repeats") or call.args[at]
        values = code.assigned(code.text(repeats.value), code.module)
        moved = m.Call(m.Attribute(m.Name(), m.Name("to") | m.Name("cuda")))
        is_moved = len(values) == 1 and m.matches(values[0], moved)
        clear(is_moved, "it is not clear what counts there are on the CPU")
        counts = code.text(owner(values[0]))
        clear(
            len(code.assigned(counts, code.module)) == 1, f"{counts} is not one tensor"
        )
        yield Changes(code).add(call, output_size=f"int({counts}.sum())")


def counted_in_fixed_size(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``bincount(x, minlength=n)``: add ones up in a tensor of that size."""
    for call in code.calls(statement, "bincount"):
        size = keyword(call, "minlength")
        clear(size, "the number of values is not known")
        is_function = code.text(call.func) == "torch.bincount"
        values = call.args[0].value if is_function else owner(call)
        is_plain = len(call.args) == 1 + is_function and isinstance(values, cst.Name)
        clear(is_plain, "it has weights, or its values no name")
        template = (
            "torch.zeros({n}, dtype=torch.long, device={x}.device)"
            ".scatter_add_(0, {x}, torch.ones_like({x}))"
        )
        yield Changes(code).swap(call, template, n=size.value, x=values)


_INDEX: Final = m.Subscript(
    m.SaveMatchedNode(m.DoNotCare(), "x"),
    [m.SubscriptElement(m.Index(m.SaveMatchedNode(m.DoNotCare(), "i")))],
)


def reduced_with_mask(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``x[mask].sum()``: choose by the mask, and keep the shape."""
    for call in code.calls(statement, "sum|mean"):
        found: Any = m.extract(owner(call) or call, _INDEX)
        if found is None or call.args:
            continue
        x, mask = found["x"], found["i"]
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
            else filled("{mask}.reshape({x}.shape)", mask=mask, x=x)
        )
        mean = " / {mask}.sum()" if called(call) == "mean" else ""
        template = f"torch.where({{given}}, {{x}}, 0).sum(){mean}"
        yield Changes(code).swap(call, template, given=given, x=x, mask=mask)


def counted_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``total += mask.nonzero().size(0)``: count them without their places."""
    added: Any = m.extract(
        statement,
        m.SimpleStatementLine(
            [
                m.AugAssign(
                    operator=m.AddAssign(),
                    value=m.SaveMatchedNode(m.DoNotCare(), "value"),
                )
            ]
        ),
    )
    for call in code.calls(statement, "nonzero") if added else ():
        ends = {f"{code.text(call)}{end}" for end in (".size(0)", ".shape[0]")}
        clear(code.text(added["value"]) in ends, "their places are used")
        yield Changes(code).swap(added["value"], "{x}.count_nonzero()", x=owner(call))


def numbers_of_loop(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``for i in places: x[i]``: read all places once, before the loop."""
    for loop in code.loops(statement):
        target = loop.target if isinstance(loop, cst.For) else None
        if isinstance(loop, cst.For) and isinstance(target, cst.Name):
            at = code.looked_at(target.value, loop)
            is_index = all(
                isinstance(place, cst.Index) and _is_read(code, place) for place in at
            )
            clear(at and is_index, f"{target.value} is more than an index")
            yield Changes(code).swap(loop.iter, "{places}.tolist()", places=loop.iter)


def _is_read(code: Code, index: cst.CSTNode) -> bool:
    """Whether what an index chooses goes into a formula, and nobody keeps it."""
    part = code.parent(code.parent(index))
    return isinstance(code.parent(part), cst.BinaryOperation | cst.Comparison)


def selected_on_gpu(code: Code, statement: cst.CSTNode) -> Iterator[Changes]:
    """``x[i]`` with ``i`` on the GPU: let the GPU choose."""
    for part in code.all(statement, cst.Subscript):
        found: Any = m.extract(part, _INDEX)
        if (
            found
            and isinstance(found["i"], cst.Name)
            and _is_read(code, code.parent(found["i"]))
        ):
            yield Changes(code).swap(part, "{x}.index_select(0, {i}[None])[0]", **found)
