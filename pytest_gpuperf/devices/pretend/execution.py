"""Runs an operation on the tensors inside ghosts."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch

from .ghost import Ghost
from .ghost import refresh
from .ghost import wrap
from .insides import CPU
from .insides import INSIDES
from .live_memory import MEMORY
from .mixing import check_devices
from .observation import observe
from .placement import is_host
from .plan import Plan
from .plan import plan_of
from .recorder import WATCH
from .refusal import NeedsGpuError
from .substitutes import NONE
from .substitutes import in_another_dtype
from .substitutes import zeros
from .transfers import PINNED
from .valueless import run_without_values


def execute(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run *func* with ghosts among its arguments; what comes out is on the device."""
    __tracebackhide__ = True
    plan = plan_of(func)
    if plan.composite and torch.is_inference_mode_enabled():
        return plan.decompose(*args, **kwargs)
    inner, hosts = _unwrap_all(args)
    kwargs, inner_kwargs = _unwrap_kwargs(plan, kwargs, hosts)
    to_host = is_host(kwargs.get("device"))
    if hosts and not plan.mixes:
        check_devices(plan.name, func, args, kwargs)
    if WATCH.recorders:
        observe(plan, func, args, kwargs)
    if MEMORY.live is not None:
        MEMORY.live.begin(plan.op, multiplies=plan.multiplies)
    if plan.multiplies:
        INSIDES.expect_product(inner)
    leaves = to_host or _is_host_target(plan, args)
    result = _run(plan, func, inner, inner_kwargs, to_host=leaves)
    if plan.flops is not None and WATCH.recorders:
        WATCH.count_flops(plan.flops.of(inner, inner_kwargs, result))
    if plan.flags:
        result = result.resolve_conj().resolve_neg()
    if to_host:
        return PINNED.pin(result) if kwargs.get("non_blocking") else result
    return _outside(plan, args, kwargs, inner, result)


def _is_host_target(plan: Plan, args: Sequence[Any]) -> bool:
    return plan.name == "copy_" and type(args[0]) is not Ghost


def _unwrap_all(args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Arguments with the tensors inside, and the host tensors among them."""
    inner: list[Any] = []
    hosts: list[Any] = []
    for arg in args:
        kind = type(arg)
        if kind is Ghost:
            inner.append(arg.inside)
        elif kind is list or kind is tuple:
            inner.append(_unwrap_list(arg, hosts))
        else:
            inner.append(arg)
            if isinstance(arg, torch.Tensor):
                hosts.append(arg)
    return inner, hosts


def _unwrap_list(values: Sequence[Any], hosts: list[Any]) -> list[Any]:
    inner = []
    for value in values:
        if type(value) is Ghost:
            inner.append(value.inside)
        elif type(value) is list:  # collectives take lists of lists
            inner.append(_unwrap_list(value, hosts))
        else:
            inner.append(value)
            if isinstance(value, torch.Tensor):
                hosts.append(value)
    return inner


def _unwrap_kwargs(
    plan: Plan, kwargs: Mapping[str, Any], hosts: list[Any]
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    if not kwargs:
        return kwargs, {}
    values, more = _unwrap_all(list(kwargs.values()))
    hosts += more
    inner = dict(zip(kwargs, values, strict=True))
    if (device := inner.get("device")) is not None:
        inner["device"] = CPU if is_host(device) else INSIDES.device
    if "pin_memory" in inner:
        inner["pin_memory"] = None
    if plan.transfers:
        inner.pop("layout", None)  # that of rows is another inside
    return kwargs, inner


def _run(
    plan: Plan,
    func: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    to_host: bool,
) -> Any:
    """Run for values, or only for sizes where the host has no memory for values."""
    __tracebackhide__ = True
    if INSIDES.hold_values:
        try:
            return plan.kernel(*args, **kwargs)
        except NotImplementedError:
            return _run_without_kernel(plan, func, args, kwargs)
        except RuntimeError as error:
            if to_host or not INSIDES.give_up_after(error):
                raise
    return run_without_values(plan, args, kwargs, to_host=to_host)


def _run_without_kernel(
    plan: Plan, func: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Run in another dtype what the CPU cannot do in this; else give zeros, unjudged."""
    __tracebackhide__ = True
    result = in_another_dtype(func, args, kwargs)
    if result is not NONE:
        return result
    WATCH.leave_unjudged(plan.op, "there is no CPU kernel to run in its place")
    try:
        return zeros(func, args, kwargs)
    except NotImplementedError:
        msg = (
            f"only a GPU can judge {plan.op}: it has neither a CPU kernel nor a meta "
            "kernel to run in its place; torch.library can register one"
        )
        raise NeedsGpuError(msg) from None


def _outside(
    plan: Plan,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    inner: list[Any],
    result: Any,
) -> Any:
    """Wrap what came out; what was written to in place is returned as it came in."""
    sources = plan.sources
    if sources is not None:
        return _written(plan, sources, args, kwargs, result)
    if type(result) is torch.Tensor or isinstance(result, torch.nn.Parameter):
        if inner and result is inner[0]:
            return args[0]
        return wrap(result)
    if isinstance(result, (list, tuple)):
        wrapped = [wrap(r) if isinstance(r, torch.Tensor) else r for r in result]
        if plan.host_output is not None:
            wrapped[plan.host_output] = result[plan.host_output]
        return type(result)(wrapped) if type(result) in {list, tuple} else wrapped
    return result


def _written(
    plan: Plan,
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
        target = args[place] if place < len(args) else kwargs.get(name)
        if plan.reshapes and type(target) is Ghost:
            _keep_up(target)
        outputs.append(target)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _keep_up(target: Ghost) -> None:
    inner = target.inside
    same = (
        target.shape == inner.shape
        and target.stride() == inner.stride()
        and target.storage_offset() == inner.storage_offset()
    )
    if not same:
        refresh(target)
