"""What modules do otherwise on CUDA: process groups, composite operations, lazy ones."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from inspect import getclosurevars
from types import CodeType, FunctionType
from typing import Any, Final

import torch
from torch.nn import parameter
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.optim import optimizer

from ...errors import ErrorId
from ..operations import eager
from .device_names import CUDA, is_cuda
from .errors import NeedsGpuError
from .guesses import followed
from .patches import Patch, Suspended, patched, when_loaded
from .recorder import WATCH
from .tensor_values import BACKING


# Process groups of CUDA code where there is no NCCL: gloo does what it would do.

NCCL: Final = "nccl"
GLOO: Final = "gloo"

distributed: Final = torch.distributed


def process_group_patches() -> Iterator[Patch]:
    """Nothing if this build of torch has no process groups."""
    if not distributed.is_available():
        return
    for name in ("init_process_group", "new_group"):
        yield Patch(distributed, name, _by_gloo(getattr(distributed, name)))
    yield Patch(distributed, "is_nccl_available", lambda: True)
    config = distributed.distributed_c10d.BackendConfig
    yield Patch(config, "__init__", _by_default(config.__init__))
    yield Patch(distributed, "_verify_params_across_processes", _verify)
    replicas = torch.nn.parallel.DistributedDataParallel
    yield Patch(replicas, "__init__", _with_values(replicas.__init__))


def _by_gloo(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *make*: gloo instead of NCCL, which runs on the tensors inside GPU tensors."""

    def made(*args: Any, **options: Any) -> Any:
        args = tuple(map(_backend, args))
        if options.get("backend") is not None:
            options["backend"] = _backend(options["backend"])
        # It binds the group to a GPU, which only NCCL supports.
        options.pop("device_id", None)
        return make(*args, **options)

    return made


def _backend(value: Any) -> Any:
    return value.replace(NCCL, GLOO) if isinstance(value, str) else value


def _by_default(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap *init*: gloo for a group whose backend is chosen by the accelerator."""

    def made(config: Any, backend: Any) -> None:
        is_chosen = str(backend) == distributed.Backend.UNDEFINED
        init(config, distributed.Backend(GLOO) if is_chosen else backend)

    return made


def _verify(*_: object) -> None:
    """Compare no shapes with other ranks: without values, or others, there are none."""


class Replicas:
    """Whether a ``DistributedDataParallel`` was made."""

    made = False


REPLICAS: Final = Replicas()


def _with_values(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def made(replica: Any, *args: Any, **options: Any) -> None:
        if not BACKING.has_values:
            msg = (
                "only a GPU can judge torch.nn.parallel.DistributedDataParallel where "
                "GPU tensors hold no values: what it reduces is made in C++"
            )
            raise NeedsGpuError(msg, ErrorId.GP308)
        init(replica, *args, **options)
        REPLICAS.made = True

    return made


# ``ctc_loss``, which on CUDA reads the lengths, and from 2.13 on the targets.

READS_TARGETS: Final = torch.__version__ >= (2, 13)
"""Whether it asks for MIOpen's kernel, also without MIOpen, which wants them on the host."""


def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *options: Any
) -> Any:
    """``aten::ctc_loss`` as torch runs it on CUDA without cuDNN's kernel.

    It computes with the lengths on their own device where tensors are of a subclass, as
    GPU tensors are.
    """
    lengths = [input_lengths, target_lengths]
    if isinstance(input_lengths, torch.Tensor):
        _choose_a_kernel(targets, lengths)
        lengths = [_numbers(each) for each in lengths]
    return ctc_loss_by_numbers(log_probs, targets, *lengths, *options)


def ctc_loss_by_numbers(log_probs: Any, targets: Any, *more: Any) -> Any:
    """The same of lengths in lists."""
    if READS_TARGETS:
        with followed():  # nobody looks at what was read
            targets.cpu()
    return torch.ops.aten.ctc_loss.IntList.decompose(log_probs, targets, *more)


def _choose_a_kernel(targets: Any, lengths: Sequence[Any]) -> None:
    """Read what torch reads to choose, besides what the chosen one reads."""
    if READS_TARGETS:
        with followed():  # nobody looks at what was read
            targets.cpu()
    else:
        for each in lengths:
            _numbers(each)


def _numbers(lengths: Any) -> list[int]:
    numbers: list[int] = lengths.cpu().tolist()
    return numbers


def eigvals(matrices: Any) -> Any:
    """``linalg.eigvals`` without eigenvectors where no gradient asks for them.

    Torch's own computes them for every tensor of a subclass.
    """
    if torch.is_grad_enabled() and matrices.requires_grad:
        return torch.linalg.eig(matrices)[0]
    return torch.ops.aten._linalg_eigvals(matrices)  # noqa: SLF001


MEAN: Final = 1
"""``at::Reduction::Mean``."""


def cross_entropy_loss(  # noqa: PLR0913, PLR0917, the operation's arguments
    tensor: Any,
    target: Any,
    weight: Any = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """``aten::cross_entropy_loss``, which sums up the weights of those targets that count.

    For weights of a subclass, as GPU tensors are, torch does so without selecting
    (``cross_entropy_loss_label_smoothing``, LossNLL.cpp).
    """
    __tracebackhide__ = True
    is_weighted = weight is not None and reduction == MEAN and label_smoothing > 0
    if is_weighted and not target.is_floating_point():
        target.masked_select(target != ignore_index)
    return _aten.cross_entropy_loss.default.decompose(
        tensor, target, weight, reduction, ignore_index, label_smoothing
    )


# Composite operations that torch composes otherwise for a CUDA tensor than for a GPU tensor.

_aten = torch.ops.aten

FLAT_DIM: Final = 2


def linear(tensor: Any, weight: Any, bias: Any = None) -> Any:
    """``aten::linear``, which adds the bias in place (Linear.cpp)."""
    __tracebackhide__ = True
    if bias is None or tensor.dim() == FLAT_DIM or tensor.is_contiguous():
        return _aten.linear.default.decompose(tensor, weight, bias)
    return torch.matmul(tensor, weight.t()).add_(bias)


def lstm_cell(
    tensor: Any, state: Any, weight: Any, weight_of_state: Any, *biases: Any
) -> Any:
    """``aten::lstm_cell`` by one kernel after two products (RNN.cpp)."""
    __tracebackhide__ = True
    gates = torch.matmul(tensor, weight.t())
    of_state = torch.matmul(state[0], weight_of_state.t())
    fused = _aten._thnn_fused_lstm_cell.default  # noqa: SLF001, what CUDA calls
    return fused(gates, of_state, state[1], *biases)[:2]


def gru_cell(
    tensor: Any, state: Any, weight: Any, weight_of_state: Any, *biases: Any
) -> Any:
    """``aten::gru_cell`` by one kernel after two products (RNN.cpp)."""
    __tracebackhide__ = True
    gates = torch.matmul(tensor, weight.t())
    of_state = torch.matmul(state, weight_of_state.t())
    fused = _aten._thnn_fused_gru_cell.default  # noqa: SLF001, what CUDA calls
    return fused(gates, of_state, state, *biases)[0]


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """``aten::one_hot``, which writes ones into zeros (Onehot.cpp).

    Where it must look for the classes, or refuses the tensor, it is torch's own.
    """
    __tracebackhide__ = True
    if num_classes <= 0 or tensor.dtype is not torch.int64 or not tensor.numel():
        return _aten.one_hot.default.decompose(tensor, num_classes)
    found = tensor.new_zeros((*tensor.shape, num_classes))
    return found.scatter_(-1, tensor.unsqueeze(-1), 1)


def _softmax_of_halves(name: str) -> Callable[..., Any]:
    """Softmax of float16 in float32, which one kernel does (SoftMax.cpp)."""
    overload = getattr(_aten, name).int
    fused = getattr(_aten, f"_{name}").default

    def kernel(tensor: Any, dim: int, dtype: Any = None) -> Any:
        __tracebackhide__ = True
        if tensor.dtype is torch.float16 and dtype is torch.float32:
            return fused(tensor, dim, True)  # noqa: FBT003, half_to_float
        return overload.decompose(tensor, dim, dtype)

    return kernel


COMPOSED_FOR_CUDA: Final[Mapping[str, Callable[..., Any]]] = {
    "cross_entropy_loss": cross_entropy_loss,
    "ctc_loss.IntList": ctc_loss_by_numbers,
    "ctc_loss.Tensor": ctc_loss,
    "gru_cell": gru_cell,
    "linalg_eigvals": eigvals,
    "linear": linear,
    "log_softmax.int": _softmax_of_halves("log_softmax"),
    "lstm_cell": lstm_cell,
    "one_hot": one_hot,
    "softmax.int": _softmax_of_halves("softmax"),
}
"""Kernels for the GPU tensors' device, by overload."""


# Kernels of triton, which only a GPU runs.

LAUNCHERS: Final = {
    "triton.runtime.jit": "JITFunction",
    "triton.runtime.autotuner": "Autotuner",
}
"""Classes with a ``run`` that launches a kernel, by their module."""


@contextmanager
def skipped_kernels() -> Iterator[None]:
    """Launch nothing and say so, also where triton is imported later."""
    with ExitStack() as undo:

        def skip_launches(module: Any) -> None:
            launcher = getattr(module, LAUNCHERS[module.__name__])
            undo.enter_context(patched([Patch(launcher, "run", skip)]))

        for name in LAUNCHERS:
            undo.enter_context(when_loaded(name, skip_launches))
        yield


def skip(kernel: Any, *_: object, **__: object) -> None:
    """``run`` of a kernel or of what picks the best of its configurations."""
    named = getattr(kernel, "base_fn", kernel)
    WATCH.leave_unchecked(
        f"triton kernel {getattr(named, '__name__', 'kernel')}",
        "only a GPU runs it; its outputs are left as they were",
    )


# Parameters of lazy modules, which are of the device before they have a shape.

MARK: Final = "_waits_for_cuda"
"""Attribute of a lazy parameter that is to be made on the device."""

UninitializedTensorMixin: Final[Any] = vars(parameter)["UninitializedTensorMixin"]
"""What both kinds are made of; torch's stub lacks it."""

_materialize = UninitializedTensorMixin.materialize


def uninitialized_patches() -> Iterator[Patch]:
    """How they are made and how they get their shape."""
    yield Patch(UninitializedTensorMixin, "materialize", materialize)
    for kind in (UninitializedParameter, UninitializedBuffer):
        yield Patch(kind, "__new__", _marking(kind.__new__))


def is_uninitialized(tensor: Any) -> bool:
    """Whether *tensor* has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)


def mark(tensor: Any) -> Any:
    """Remember that *tensor* is to be made on the device."""
    setattr(tensor, MARK, True)
    return tensor


def materialize(tensor: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
    """Give *tensor* its shape, on the device if it was moved there before."""
    __tracebackhide__ = True
    if not is_cuda(CUDA if device is None and hasattr(tensor, MARK) else device):
        _materialize(tensor, shape, device, dtype)
        return
    made = torch.empty(shape, dtype=dtype or tensor.data.dtype, device=CUDA)
    if isinstance(tensor, UninitializedParameter):
        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    # Modules and optimizers have references to this very object, so its contents are
    # swapped and not the object.
    torch.utils.swap_tensors(tensor, made)


def _marking(new: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *new*: on the host, and marked if its ``device`` is the simulated one."""

    @functools.wraps(new)
    def made(cls: Any, *args: Any, device: Any = None, **options: Any) -> Any:
        if not is_cuda(device):
            return new(cls, *args, device=device, **options)
        return mark(new(cls, *args, **options))

    return made


# Keeps dynamo, whose import takes seconds, out of a process that compiles nothing.


LATE_MODULE: Final = "torch._dynamo"


@contextmanager
def late_dynamo(suspended: Suspended) -> Iterator[None]:
    """Do without dynamo until a program loads it, and hide the patches from it then."""
    with ExitStack() as undo:
        without = undo.enter_context(ExitStack())
        if LATE_MODULE not in sys.modules:
            without.enter_context(_stepping_without())
            without.enter_context(_calling_without())

        def run_eagerly(_: object) -> None:
            without.close()
            undo.enter_context(eager())

        undo.enter_context(when_loaded(LATE_MODULE, run_eagerly, suspended))
        yield


DISABLED: Final = "__dynamo_disable"
"""Where such a function remembers, from its first call on, what to call in its place."""

KEEPS_DYNAMO_OUT: Final = getattr(torch._disable_dynamo(abs), "__code__", None)  # noqa: SLF001, there is no public one


def _hidden() -> Iterator[Any]:
    """Yield what torch hides from dynamo, such as parts of optimizers and of its kernels."""
    for inner in gc.get_referrers(KEEPS_DYNAMO_OUT):
        if isinstance(inner, FunctionType):
            yield getclosurevars(inner).nonlocals["fn"]


# At import: a server of measuring processes then hides all objects from the collector.
HIDDEN: Final = tuple(_hidden())


@contextmanager
def _calling_without() -> Iterator[None]:
    """Call functions that are hidden from dynamo as they are."""
    for function in HIDDEN:
        setattr(function, DISABLED, function)
    try:
        yield
    finally:
        for function in HIDDEN:
            delattr(function, DISABLED)


def _use_grad_for_differentiable(func: Any) -> Any:
    """Do what torch's decorator does, without its two calls of dynamo."""

    def _use_grad(*args: Any, **kwargs: Any) -> Any:
        enabled = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(args[0].defaults["differentiable"])
            return func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(enabled)

    return _use_grad


@contextmanager
def _stepping_without() -> Iterator[None]:
    """Let the steps of torch's optimizers break no graph of dynamo: there is none."""
    decorated: Any = optimizer._use_grad_for_differentiable  # noqa: SLF001, what to replace
    breaking: CodeType = decorated(_use_grad_for_differentiable).__code__
    own: CodeType = _use_grad_for_differentiable(None).__code__
    plain = own.replace(
        co_filename=breaking.co_filename, co_firstlineno=breaking.co_firstlineno
    )
    is_alike = plain.co_freevars == breaking.co_freevars
    found = [s for s in _steps() if is_alike and s.__code__ is breaking]
    for step in found:
        step.__code__ = plain
    try:
        yield
    finally:
        for step in found:
            step.__code__ = breaking


def _steps() -> Iterator[Any]:
    """Yield what each optimizer of torch takes a step with, below its hooks."""
    for kind in vars(torch.optim).values():
        step = vars(kind).get("step") if isinstance(kind, type) else None
        step = getattr(step, "__wrapped__", step) if hasattr(step, "hooked") else step
        if hasattr(step, "__code__"):
            yield step
