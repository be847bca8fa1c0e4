"""Run torch's own samples of its operations on the simulated GPU, forward and backward.

    python tools/opinfo_sweep.py [part of an operation's name]

The samples are those of ``torch.testing``'s OpInfo database, the first few of each
operation. An operation fails where it runs on the CPU and not on the simulated GPU, or
where the results differ; those that draw random numbers are only run. Exit status 1 if
any failed. It takes some minutes.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree

from pytest_gpuperf.devices.simulated import simulated_gpu


SAMPLES: Final = 6
RANDOM: Final = ("rand", "dropout", "bernoulli", "multinomial", "normal", "empty")
"""Parts of names whose results are not to be compared."""


NOT_MOVED: Final = {
    "tensor_split": "CUDA wants its places on the host, and the samples are moved",
    "sparse.mm.reduce": "CUDA has no kernel for it",
    "as_strided.partial_views": "a sample looks behind its tensor, and that is not moved",
}
"""Operations whose samples mean another thing on a device, and why."""


def dtype_of(op: Any) -> Any:
    wanted = (torch.float32, torch.int64, torch.bool)
    return next((dtype for dtype in wanted if dtype in op.dtypes), None)


def samples_of(op: Any, dtype: Any, *, requires_grad: bool) -> list[Any]:
    made = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    return list(islice(made, SAMPLES))


def moved(value: Any) -> Any:
    """*value* with its tensors on the device, leaves that require what they did."""

    def move(tensor: Any) -> Any:
        return tensor.detach().to("cuda").requires_grad_(tensor.requires_grad)

    return _pytree.tree_map_only(torch.Tensor, move, value)


def run(op: Any, sample: Any, *, on_device: bool, backward: bool) -> list[Any]:
    """Outputs of one sample, or the gradients of its inputs, on the host."""
    given = (sample.input, tuple(sample.args), dict(sample.kwargs))
    given = moved(given) if on_device else given
    _, _, kwargs = given
    if on_device and "device" in kwargs:
        kwargs["device"] = "cuda"
    function = getattr(torch, op.name, op) if on_device and "device" in kwargs else op
    out = function(given[0], *given[1], **kwargs)
    if sample.output_process_fn_grad is not None:
        out = sample.output_process_fn_grad(out)
    leaves = [t for t in _pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    if backward:
        leaves = gradients(leaves, _pytree.tree_leaves(given))
    return [t.detach().cpu() for t in leaves if t is not None]


def gradients(outputs: list[Any], inputs: list[Any]) -> list[Any]:
    total = sum(
        out.abs().sum() if out.is_complex() else out.sum()
        for out in outputs
        if out.requires_grad
    )
    wanted = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if not wanted or not isinstance(total, torch.Tensor):
        return []
    return list(torch.autograd.grad(total, wanted, allow_unused=True))


def fails(op: Any, sample: Any, *, backward: bool) -> str | None:
    """Why *sample* fails on the device; ``None`` if it does not, there or on the CPU."""
    try:
        torch.manual_seed(0)
        expected = run(op, sample, on_device=False, backward=backward)
    except Exception:  # noqa: BLE001, whatever a sample raises
        return None
    try:
        torch.manual_seed(0)
        got = run(op, sample, on_device=True, backward=backward)
        if not any(part in op.name for part in RANDOM):
            torch.testing.assert_close(
                got, expected, equal_nan=True, rtol=1e-3, atol=1e-3
            )
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:110]}"
    return None


def failures(
    samples: Callable[[], list[Any]], op: Any, *, backward: bool
) -> Iterator[str]:
    try:
        made = samples()
    except Exception:  # noqa: BLE001, samples that this build cannot make
        return
    for sample in made:
        reason = fails(op, sample, backward=backward)
        if reason is not None:
            yield reason


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def sweep(ops: list[Any], *, backward: bool) -> int:
    direction = "backward" if backward else "forward"
    failed = 0
    for op in ops:
        dtype = dtype_of(op)
        found = Counter(
            failures(
                lambda op=op, dtype=dtype: samples_of(  # type: ignore[misc]
                    op, dtype, requires_grad=backward
                ),
                op,
                backward=backward,
            )
        )
        failed += bool(found)
        for reason, count in found.items():
            print(f"{direction:<9} {name_of(op):<44} {count} x {reason}", flush=True)
    print(f"{direction:<9} {len(ops)} operations, {failed} failed", flush=True)
    return failed


def main(arguments: list[str]) -> int:
    warnings.simplefilter("ignore")
    part = arguments[0] if arguments else ""
    ops = [
        op
        for op in op_db
        if part in name_of(op)
        and dtype_of(op) is not None
        and name_of(op) not in NOT_MOVED
    ]
    trained = [op for op in ops if op.supports_autograd and torch.float32 in op.dtypes]
    with simulated_gpu():
        failed = sweep(ops, backward=False) + sweep(trained, backward=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
