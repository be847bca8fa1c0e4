"""Runs an operation on the tensors inside GPU tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from ...errors import ErrorId, StepError
from ...model.finding import FindingKind
from ...model.metrics import FLOPS
from ..audit_record import CopyDirection
from ..memory_owners import current_node, has_node
from .backward_rules import BackwardWatch, is_in_place, is_stolen
from .device_names import CUDA, is_host
from .errors import BUGS, NeedsGpuError, is_own_bug, own_failure
from .guesses import GUESSED, SIZE_OF_ZEROS, guessed_on_host, leave_unchecked, positions
from .kernels import (
    NO_CPU_KERNEL,
    NO_OUTPUT,
    SPARSE_SUMS,
    in_another_dtype,
    mapped,
    sizes_from_zeros,
    with_elements_apart,
    zeros,
)
from .memory import SIMULATED_MEMORY, LiveMemory, seen, taken
from .mixed_devices import check_devices, check_lengths
from .op_plan import Flops, OpPlan, kernel_of, plan_of, schema_of
from .operation import MASKS, NO_TEMPORARIES, NOTHING_MORE, OpCall, Temporaries
from .recorder import WATCH
from .sync_conditions import SyncRule
from .sync_rules import INDEXING
from .tensor import (
    ELEMENT_READ,
    KNOWN,
    SELECT,
    SHOWN,
    is_gpu_tensor,
    is_unusual,
    leave_unknown_layouts,
    refresh,
    wrap,
    wrap_view,
)
from .tensor_values import BACKING
from .transfers import H2D, MOVED, PINNED_MEMORY, is_dense, record_copy


# Looks at an operation about to run and records what a GPU would make of it.

_backward = BackwardWatch()

SELECT_OP: Final = "aten::select"
_select = kernel_of(SELECT)


def observe(
    plan: OpPlan, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Record it; a rule that fails leaves the operation unchecked and ends nothing."""
    try:
        _observe(plan, func, args, kwargs)
    except Exception as error:  # noqa: BLE001, see above
        WATCH.leave_unchecked(plan.op, own_failure(error))


def _observe(
    plan: OpPlan, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    # Checked for every operation, so the common case, a forward, costs one call into C.
    if current_node() is not None:
        _backward.look(plan.name)
    if plan.launches:
        WATCH.launch(plan.op)
    if plan.is_absent:
        WATCH.leave_unchecked(plan.op, "CUDA has no kernel for it")
    if plan.transfers:
        _record_transfer(plan, args, kwargs)
    if plan.rules:
        _apply(
            plan.rules, plan.op, OpCall(schema_of(func), args, kwargs, is_gpu_tensor)
        )
        if plan.indexes:
            _record_host_indices(plan.op, args[1])
    if SHOWN.any:
        call = OpCall(schema_of(func), args, kwargs, is_gpu_tensor)
        _apply(plan.sparse_rules, plan.op, call)
        leave_unknown_layouts(t.inside for t in call.tensors() if is_gpu_tensor(t))
    if plan.keeps_forward and torch.is_grad_enabled() and has_node(args):
        WATCH.remember_forward()


def _apply(rules: Sequence[SyncRule], op: str, call: OpCall) -> None:
    for rule in rules:
        if times := rule.when(call) * rule.count:
            WATCH.synced(rule.kind, op, rule.reason, times)
            if rule.copied is not None:
                _record_copies(op, CopyDirection.H2D, times, rule.copied(call))
            if rule.read_back is not None:
                _record_copies(op, CopyDirection.D2H, times, rule.read_back(call))


def _record_copies(op: str, direction: CopyDirection, times: int, nbytes: int) -> None:
    for _ in range(times):
        WATCH.copy(op, direction, pinned=False, nbytes=nbytes)


def _record_transfer(
    plan: OpPlan, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    if _is_to_meta(plan, args, kwargs):
        return
    if plan.name == "_to_copy":
        target, source, is_fresh = None, args[0], True
        to_device = not is_host(kwargs.get("device"))
        host, non_blocking = None, kwargs.get("non_blocking", False)
    else:
        target, source, is_fresh = args[0], args[1], False
        to_device = is_gpu_tensor(target)
        host = source if to_device else target
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)  # noqa: PLR2004
    from_device = is_gpu_tensor(source)
    # A copy within the device crosses no bus and waits for nothing.
    if from_device is to_device:
        return
    # torch pins the new host tensor of a non_blocking copy itself.
    pinned = bool(non_blocking) if is_fresh else PINNED_MEMORY.contains(host)
    # torch first makes the source contiguous on the host, in memory that is pageable.
    if to_device and not _is_one_block(source, target):
        pinned = False
    direction = CopyDirection.H2D if to_device else CopyDirection.D2H
    moved_as = _dtype_on_the_way(source, target, kwargs, non_blocking=non_blocking)
    record_copy(
        "aten::_to_copy" if MOVED.source is source else plan.op,
        direction,
        pinned=pinned,
        non_blocking=bool(non_blocking),
        nbytes=source.numel() * moved_as.itemsize,
    )


def _is_to_meta(plan: OpPlan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether it copies to torch's meta device: no data moves."""
    place = kwargs.get("device") if plan.name == "_to_copy" else args[0].device
    return place is not None and place.type == "meta"


def _dtype_on_the_way(
    source: Any, target: Any, kwargs: Mapping[str, Any], *, non_blocking: bool
) -> Any:
    """Return the dtype in which the elements cross the bus.

    A blocking copy converts them on the host and another one on the device, to save
    memory there; see ``copy_kernel_cuda`` in torch's Copy.cu.
    """
    wanted = kwargs.get("dtype") if target is None else target.dtype
    converts_first = bool(non_blocking) is is_gpu_tensor(source)
    return wanted if wanted is not None and converts_first else source.dtype


def _is_one_block(source: Any, target: Any) -> bool:
    """Whether a copy to the device needs no contiguous one on the host before it.

    A new tensor takes the strides of one that is dense; see ``copy_requires_temporaries``
    in torch's Copy.cu.
    """
    if source.layout is not torch.strided:
        return True
    if source.is_contiguous() and (target is None or target.is_contiguous()):
        return True
    if target is not None and target.stride() != source.stride():
        return False
    return is_dense(source)


def _record_host_indices(op: str, indices: Sequence[Any]) -> None:
    for index in indices:
        if index is None or is_gpu_tensor(index) or not index.numel():
            continue
        if index.dtype in MASKS:
            _record_places(op, index)
        else:
            nbytes = index.numel() * index.element_size()
            WATCH.copy(op, H2D, pinned=False, nbytes=nbytes)


def _record_places(op: str, mask: Any) -> None:
    """Record the copies of where *mask* is true, by dimension, found on the host.

    torch pins them (IndexingUtils.h, pull request 156384).
    """
    nbytes = int(mask.count_nonzero()) * torch.int64.itemsize
    for _ in range(mask.dim() if nbytes else 0):
        WATCH.copy(op, H2D, pinned=True, nbytes=nbytes)


# Runs an operation on GPU tensors without values.


def run_without_values(
    plan: OpPlan, args: list[Any], kwargs: dict[str, Any], *, to_host: bool
) -> Any:
    """Run an operation for sizes only.

    Tensors that have values (the host's, and GPU tensors from before values were given up)
    are used for their sizes only. Raises ``StepError`` for an operation that has neither
    a meta kernel nor one of the host, as torch then cannot compute sizes.
    """
    __tracebackhide__ = True
    if plan.transfers and to_host and not _is_to_meta(plan, args, kwargs):
        return guessed_on_host(plan.op, args, kwargs)
    if plan.name == "copy_":
        return args[0]
    if plan.views or to_host:
        return plan.kernel(*args, **kwargs)
    on_host = args[plan.host_argument] if plan.host_argument is not None else None
    args, kwargs = mapped(_sized, args), dict(_sized_all(kwargs))
    if plan.host_argument is not None:
        args[plan.host_argument] = on_host
    if guess := GUESSED.get(plan.name):
        return guess(*args, **kwargs)
    if plan.name in INDEXING and not plan.sources:
        args[1] = _without_masks(args[1])
    return _run_kernel(plan, args, kwargs)


def _run_kernel(plan: OpPlan, args: list[Any], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    try:
        return plan.kernel(*args, **kwargs)
    except NotImplementedError:
        if plan.writes_only:
            return None
    try:
        return _with_sizes_of_zeros(plan, args, kwargs)
    except NotImplementedError:
        pass
    msg = (
        f"{plan.op} has no meta kernel and none of the CPU, so the simulated GPU cannot go on after it where "
        "values do not fit: register one with torch.library, or run this step on a GPU"
    )
    raise StepError(msg, ErrorId.GP307)


def _with_sizes_of_zeros(plan: OpPlan, args: list[Any], kwargs: dict[str, Any]) -> Any:
    found = sizes_from_zeros(plan.kernel, args, kwargs)
    # Nobody knows of a custom operation whether values decide its sizes.
    if plan.sized_by_values or not plan.op.startswith("aten::"):
        leave_unchecked(plan.op, SIZE_OF_ZEROS)
    return found


def _sized(tensor: Any) -> Any:
    if tensor.is_meta or tensor.layout is not torch.strided:
        return tensor
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"
    )


def _sized_all(kwargs: Mapping[str, Any]) -> Any:
    for name, value in kwargs.items():
        if name != "generator":
            yield name, mapped(_sized, [value])[0]


def _without_masks(indices: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for index in indices:
        is_mask = index is not None and index.dtype in MASKS
        found += positions(index) if is_mask else [index]
    return found


def _any_tensor(args: Sequence[Any], is_so: Callable[[Any], bool]) -> bool:
    """Whether *is_so* of a tensor among *args*, or in lists among them."""
    return any(
        _any_tensor(arg, is_so)
        if isinstance(arg, list | tuple)
        else isinstance(arg, torch.Tensor) and is_so(arg)
        for arg in args
    )


def _taken_apart(plan: OpPlan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run other operations in its place; ``NO_OUTPUT`` if there are none, or only a GPU can."""
    __tracebackhide__ = True
    # Without autograd, as in inference mode and below a tensor subclass: there torch
    # otherwise takes such an operation apart before it comes here.
    given = (*args, MOVED.source)
    is_whole = _any_tensor(given, _is_without_rules)
    if is_whole and not plan.is_of_program:
        return NO_OUTPUT
    try:
        return plan.decompose(*args, **kwargs)
    except RuntimeError as error:
        # A kernel in Python may start what only a GPU runs, as Triton's do.
        if not plan.is_of_program or isinstance(error, torch.OutOfMemoryError):
            raise
        return NO_OUTPUT


def execute(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run *func* with GPU tensors among its arguments; what comes out is on the device."""
    __tracebackhide__ = True
    plan = plan_of(func)
    is_whole = not (plan.is_of_program or plan.composite)  # as nearly all are
    result = NO_OUTPUT if is_whole else _taken_apart(plan, args, kwargs)
    if result is not NO_OUTPUT:
        return result
    if plan.name == "clone" and is_stolen(args[0]):
        return wrap(args[0].inside.detach())
    live = SIMULATED_MEMORY.live
    if live is not None and plan.in_place and is_in_place(func, plan.name, args):
        return execute(plan.in_place, args, kwargs)
    inner, hosts = _unwrap_all(args)
    inner_kwargs = _unwrap_kwargs(plan, kwargs, hosts) if kwargs else {}
    to_host = bool(kwargs) and is_host(kwargs.get("device"))
    if hosts and not plan.mixes:
        check_devices(plan.name, func, args, kwargs)
    if plan.host_argument is not None:
        check_lengths(args[plan.host_argument])
    if WATCH.recorders:
        observe(plan, func, args, kwargs)
    if live is not None:
        # cuSPARSE takes no workspace of cuBLAS.
        is_sparse = SHOWN.any and _any_tensor(
            args, lambda t: t.layout is not torch.strided
        )
        live.begin(plan.op, multiplies=plan.multiplies and not is_sparse)
    if plan.multiplies:
        # Before the operation: the allocation may be larger than the host's memory, and
        # Linux would kill the process instead of refusing it.
        BACKING.expect_product(inner)
    outer, inside = (args, kwargs), (inner, inner_kwargs)
    if live is None or (plan.temporaries or plan.sparse_temporaries) is None:
        return _performed(plan, func, outer, inside, to_host=to_host)
    with _taking(live, _temporaries(plan, func, *inside)):
        return _performed(plan, func, outer, inside, to_host=to_host)


def select(args: Sequence[Any]) -> Any:
    """Do as ``execute`` with ``SELECT``, in less time: a test may read all elements."""
    __tracebackhide__ = True
    live = SIMULATED_MEMORY.live
    is_plain = BACKING.has_values and not SHOWN.any and current_node() is None
    if live is None or not is_plain or WATCH.locates_work:
        return execute(SELECT, args, {})
    # A view takes no memory, runs nothing and waits for nothing, but may be kept.
    live.begin(SELECT_OP, multiplies=False)
    inner = _select(args[0].inside, *args[1:])
    live.locate(inner)
    return wrap_view(inner)


def read_element(tensor: Any) -> Any:
    """Do as ``execute`` with ``ELEMENT_READ``, in less time: a test may read all elements."""
    __tracebackhide__ = True
    if tensor.inside.is_meta or not BACKING.has_values:
        return execute(ELEMENT_READ, (tensor,), {})
    plan = plan_of(ELEMENT_READ)
    if WATCH.recorders and (SHOWN.any or current_node() is not None):
        observe(plan, ELEMENT_READ, (tensor,), {})
    else:
        caller = sys._getframe(2)  # noqa: SLF001, of torch or of ``GpuTensor.item``
        WATCH.synced(FindingKind.SYNC, plan.op, plan.rules[0].reason, 1, caller)
    if (live := SIMULATED_MEMORY.live) is not None:
        live.begin(plan.op, multiplies=False)
    result = tensor.inside.item()
    WATCH.ran(plan.op, result, computes=plan.launches)
    return result


def _performed(
    plan: OpPlan,
    func: Any,
    outer: tuple[Sequence[Any], Mapping[str, Any]],
    inside: tuple[list[Any], dict[str, Any]],
    *,
    to_host: bool,
) -> Any:
    """Run it on the arguments *inside*, those of *outer* without their GPU tensors."""
    __tracebackhide__ = True
    (args, kwargs), (inner, inner_kwargs) = outer, inside
    leaves = to_host or _is_host_target(plan, args)
    result = _run(plan, func, inner, inner_kwargs, to_host=leaves)
    if plan.flops is not None and WATCH.recorders:
        _count_flops(plan, plan.flops, inner, inner_kwargs, result)
    # A wrapper cannot carry the flag, so the value inside is computed at once.
    if plan.flags:
        result = result.resolve_conj().resolve_neg()
    WATCH.ran(plan.op, result, computes=plan.launches)
    if to_host:
        return PINNED_MEMORY.pin(result) if kwargs.get("non_blocking") else result
    return _outside(plan, args, kwargs, inner, result)


def _is_without_rules(tensor: Any) -> bool:
    return tensor.is_nested or tensor.layout not in KNOWN


def _temporaries(
    plan: OpPlan, func: Any, inner: list[Any], kwargs: dict[str, Any]
) -> Temporaries:
    """What its kernel takes; a rule that fails leaves the memory unchecked."""
    call = OpCall(schema_of(func), inner, kwargs, is_gpu_tensor)
    rule = plan.temporaries
    if SHOWN.any and any(map(is_unusual, call.tensors())):
        has_rule = not any(map(_is_without_rules, call.tensors()))
        rule = plan.sparse_temporaries if has_rule else None
    if rule is None:
        return NO_TEMPORARIES
    try:
        return rule(call)
    except Exception as error:  # noqa: BLE001, it ends nothing
        WATCH.leave_unchecked(plan.op, own_failure(error))
        return NO_TEMPORARIES


@contextmanager
def _taking(live: LiveMemory, needed: Temporaries) -> Iterator[None]:
    first = _taken(live, needed.before)
    live.at_outputs = needed.outputs
    try:
        yield
        for sizes in needed.phases:
            live.give_back(_taken(live, sizes))
    finally:
        live.at_outputs = {}
        live.give_back(first)


def _taken(
    live: LiveMemory, sizes: Sequence[int | Sequence[int]]
) -> list[tuple[int, int]]:
    """What is kept of *sizes*: a group among them is given back at once."""
    kept: list[tuple[int, int]] = []
    for size in sizes:
        if isinstance(size, int):
            kept += live.take((size,))
        else:
            live.give_back(live.take(size))
    return kept


def _count_flops(
    plan: OpPlan,
    flops: Flops,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
) -> None:
    try:
        count = flops.of(args, kwargs, result)
    except Exception as error:  # noqa: BLE001, it ends nothing either
        WATCH.leave_unchecked(plan.op, own_failure(error))
    else:
        WATCH.count(FLOPS, count)


def _is_host_target(plan: OpPlan, args: Sequence[Any]) -> bool:
    return plan.name == "copy_" and not is_gpu_tensor(args[0])


def _unwrap_all(args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Arguments with the tensors inside, and the host tensors among them."""
    hosts: list[Any] = []
    return _unwrap_list(args, hosts), hosts


def _unwrap_list(values: Sequence[Any], hosts: list[Any]) -> list[Any]:
    inner: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is int:  # an index or a size, as most are
            inner.append(value)
        elif is_gpu_tensor(value):
            inner.append(value.inside)
        elif kind is list or kind is tuple:  # collectives take lists of lists
            inner.append(_unwrap_list(value, hosts))
        else:
            inner.append(value)
            if isinstance(value, torch.Tensor):
                hosts.append(value)
    return inner


def _unwrap_kwargs(
    plan: OpPlan, kwargs: Mapping[str, Any], hosts: list[Any]
) -> dict[str, Any]:
    values, more = _unwrap_all(list(kwargs.values()))
    hosts += more
    inner = dict(zip(kwargs, values, strict=True))
    if (device := inner.get("device")) is not None:
        inner["device"] = device if is_host(device) else BACKING.device
    if "pin_memory" in inner:
        # The host has no CUDA to pin memory with.
        inner["pin_memory"] = None
    if plan.transfers:
        inner.pop("layout", None)  # that of rows is another inside
    return inner


def _run(
    plan: OpPlan,
    func: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    to_host: bool,
) -> Any:
    """Run for values, or only for sizes if the host has no memory for values."""
    __tracebackhide__ = True
    if SHOWN.any and plan.name in SPARSE_SUMS:
        args = with_elements_apart(args)
    if BACKING.has_values:
        try:
            return plan.kernel(*args, **kwargs)
        except NotImplementedError:
            if plan.name == "copy_" and args[1].is_meta:  # torch's words are the answer
                raise
            return _run_without_kernel(plan, func, args, kwargs)
        except BUGS as error:
            if not is_own_bug(error, __file__):
                raise
            WATCH.leave_unchecked(plan.op, own_failure(error))
            return kernel_of(func)(*args, **kwargs)
        except RuntimeError as error:
            if "is not on the expected device" in str(error):  # with one on meta
                raise RuntimeError(str(error).replace(" cpu", f" {CUDA}")) from None
            if to_host or not BACKING.give_up_after(error):
                raise
    return run_without_values(plan, args, kwargs, to_host=to_host)


def _run_without_kernel(
    plan: OpPlan, func: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Run in another dtype if the CPU has no kernel; else return zeros, unchecked."""
    __tracebackhide__ = True
    result = in_another_dtype(func, args, kwargs)
    if result is not NO_OUTPUT:
        return result
    WATCH.leave_unchecked(plan.op, NO_CPU_KERNEL)
    try:
        return zeros(func, args, kwargs)
    except NotImplementedError:
        msg = (
            f"only a GPU can judge {plan.op}: it has neither a CPU kernel nor a meta "
            "kernel to run in its place; torch.library can register one"
        )
        raise NeedsGpuError(msg, ErrorId.GP308) from None


def _outside(
    plan: OpPlan,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    inner: list[Any],
    result: Any,
) -> Any:
    """Wrap the results; an argument that was written to is returned as it came in.

    Raises ``StepError`` if that fails, as nobody can go on without them.
    """
    __tracebackhide__ = True
    try:
        return _wrapped(plan, args, kwargs, inner, result)
    except (StepError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        msg = f"{plan.op}: {own_failure(error)}"
        raise StepError(msg, ErrorId.GP310) from error


def _wrapped(
    plan: OpPlan,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    inner: list[Any],
    result: Any,
) -> Any:
    sources = plan.sources
    if sources is not None:
        return _written(plan, sources, args, kwargs, result)
    # To ask for a parameter runs code of torch's in Python.
    if type(result) is torch.Tensor or (
        isinstance(result, torch.Tensor) and isinstance(result, torch.nn.Parameter)
    ):
        # An operation that had nothing to do returns its argument: the GPU tensor around
        # that one exists.
        if inner and result is inner[0]:
            return args[0]
        return wrap(result)
    if isinstance(result, (list, tuple)):
        for place in plan.birth_order:
            _see(result[place], place)
        wrapped = [
            part if place in plan.host_outputs else _wrapped_part(part)
            for place, part in enumerate(result)
        ]
        return type(result)(wrapped) if type(result) in {list, tuple} else wrapped
    return result


def _wrapped_part(part: Any) -> Any:
    if isinstance(part, list):  # the gradients of a layer's weights
        return [_wrapped_part(each) for each in part]
    return wrap(part) if isinstance(part, torch.Tensor) else part


def _see(tensor: Any, place: int) -> None:
    """Let an output be born, with what its kernel takes around it and after it."""
    if (live := SIMULATED_MEMORY.live) is None or tensor is None:
        return
    around, after = live.at_outputs.get(place, NOTHING_MORE)
    with taken(*around):
        live.see(tensor)
    with taken(*after):
        pass


def _written(
    plan: OpPlan,
    sources: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
) -> Any:
    outputs = []
    results = result if isinstance(result, (list, tuple)) else [result]
    for position, (place, name) in enumerate(sources):
        if place is None:
            out = results[position]
            outputs.append(wrap(out) if isinstance(out, torch.Tensor) else out)
            continue
        target: Any = args[place] if place < len(args) else kwargs.get(name)
        if plan.reshapes and is_gpu_tensor(target):
            _keep_up(target)
        if SHOWN.any and is_gpu_tensor(target) and target.inside.is_sparse:
            seen(target.inside)  # its elements are other ones
        outputs.append(target)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _keep_up(target: Any) -> None:
    inner = target.inside
    same = (
        target.shape == inner.shape
        and target.stride() == inner.stride()
        and target.storage_offset() == inner.storage_offset()
    )
    if not same:
        refresh(target)
