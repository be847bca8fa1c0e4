"""When a rule applies: each condition looks at a call and says how often it does."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Call


Condition = Callable[[Call], int]


def on_device(call: Call) -> int:
    """Any tensor is on the device."""
    return int(call.is_any_on_device())


def not_empty(call: Call) -> int:
    """The tensor has elements; torch answers for an empty one without a kernel."""
    return int(call.is_any_on_device() and next(call.tensors()).numel() > 0)


def compares_elements(call: Call) -> int:
    """``equal`` of tensors that their sizes and their memory do not tell apart."""
    ours, others = call["self"], call["other"]
    if not call.is_any_on_device() or ours.shape != others.shape or not ours.numel():
        return 0
    return int(
        ours.data_ptr() != others.data_ptr()
        or ours.dtype != others.dtype
        or ours.stride() != others.stride()
    )


def named(*names: str) -> Condition:
    """Once for each of the arguments *names* that is a tensor on the device."""

    def condition(call: Call) -> int:
        return sum(call.on_device(name) for name in names)

    return condition


def without(name: str) -> Condition:
    """On the device, and the argument *name* was not given."""
    return lambda call: int(call.is_any_on_device() and call[name] is None)


def without_dim(call: Call) -> int:
    """Over all elements, not along one dimension."""
    return int(call.is_any_on_device() and call["dim"] is None)


def size_unknown(call: Call) -> int:
    """``repeat_interleave`` of device repeats without ``output_size``."""
    return int(call.on_device("repeats") and call["output_size"] is None)


def range_unknown(call: Call) -> int:
    """``histc`` whose ends are equal, as they are by default."""
    return int(call.is_any_on_device() and call["min"] == call["max"])


def lengths_checked(call: Call) -> int:
    """``segment_reduce`` of lengths that were not declared safe."""
    return int(call.on_device("lengths") and not call["unsafe"])


def test_set_is_large(call: Call) -> int:
    """``isin`` above torch's own threshold, where it sorts both sets."""
    elements, tests = call["elements"], call["test_elements"]
    if not isinstance(elements, torch.Tensor) or not isinstance(tests, torch.Tensor):
        return 0
    is_large = tests.numel() >= 10.0 * float(elements.numel()) ** 0.145
    return int(is_large and call.on_device("elements") and not call["assume_unique"])


def device_masks(call: Call) -> int:
    """Once for each mask on the device, unless the call becomes a fill."""
    return 0 if _is_fill(call) or _has_host_number(call) else _masks(call)


def host_masks(call: Call) -> int:
    """Once for each mask on the host."""
    return call.host_indices(masks=True) if _on_device_self(call) else 0


def host_positions(call: Call) -> int:
    """Once for each index tensor on the host that is no mask."""
    if not _on_device_self(call) or _has_host_number(call) or _masks(call):
        return 0
    return call.host_indices(masks=False)


def host_number(call: Call) -> int:
    """A number from the host put at positions, where no fill will do."""
    return int(_has_host_number(call) and not _is_fill(call))


def _on_device_self(call: Call) -> bool:
    return call.on_device("self")


def _masks(call: Call) -> int:
    return call.device_indices(masks=True) if _on_device_self(call) else 0


def _has_host_number(call: Call) -> bool:
    values = call["values"]
    return _on_device_self(call) and call.holds_host(values) and values.numel() == 1


def _is_fill(call: Call) -> bool:
    """One mask, a number from the host, nothing to add up: ``masked_fill``."""
    return (
        _has_host_number(call)
        and call.device_indices(masks=True) == 1
        and sum(i is not None for i in call["indices"]) == 1
        and not call["accumulate"]
    )
