"""Substitutes for operations that the CPU has no kernel for, or none for their
dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch._prims_common import suggest_memory_format


def svd(
    matrices: Any,
    full_matrices: bool = False,  # noqa: FBT001, FBT002, as torch has it
    compute_uv: bool = True,  # noqa: FBT001, FBT002
    *,
    driver: str | None = None,
) -> Any:
    """``_linalg_svd``, for which only CUDA lets its caller choose cuSOLVER's function."""
    del driver
    return torch.ops.aten._linalg_svd(matrices, full_matrices, compute_uv)  # noqa: SLF001


def reduced_product(rows: Any, dense: Any, reduce: str) -> Any:
    """``_sparse_mm_reduce_impl``, with the positions that its backward reads unasked.

    It leaves them out if no input asks for a gradient, as none inside does, and its
    backward then reads where there is nothing.
    """
    product = torch.ops.aten._sparse_mm_reduce_impl  # noqa: SLF001
    found, positions = product(rows, dense.detach().requires_grad_(), reduce)
    return found.detach(), positions.detach()


def product_in_dtype(product: Callable[..., Any]) -> Callable[..., Any]:
    """Make *product* take the dtype of its result, which the CPU's kernels do not."""

    def made(*operands: Any, **options: Any) -> Any:
        *tensors, dtype = operands
        return product(*(tensor.to(dtype) for tensor in tensors), **options)

    return made


ABSENT_ON_CUDA: Final = frozenset({"_sparse_mm_reduce_impl"})
"""What only the CPU has a kernel for; on CUDA it raises."""

HOST_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "_linalg_svd": svd,
    "_sparse_mm_reduce_impl": reduced_product,
}
"""What runs on the host in place of an operation's own kernel, which refuses arguments."""

PRODUCTS_IN_DTYPE: Final = {
    f"{name}.{overload}": product_in_dtype(getattr(getattr(torch.ops.aten, name), base))
    for name in ("mm", "bmm", "addmm", "baddbmm")
    for overload, base in (("dtype", "default"), ("dtype_out", "out"))
}
"""Overloads with the dtype of their result, from torch 2.8 on: only CUDA has kernels."""

HALVES: Final = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
INTEGERS: Final = dict.fromkeys(
    (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64
)
"""What to compute in instead, by dtype."""

COUNTING_OPS: Final = frozenset({"aten::histc"})
"""Operations that CUDA has for integers and the CPU has not."""

NO_FAKE: Final = "no fake impl registered"
"""What ``torch.library`` says of a custom operation without a meta kernel."""

NO_CPU_KERNEL: Final = "there is no CPU kernel to run in its place"

NO_OUTPUT: Final = object()
"""There is no substitute."""


def in_another_dtype(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Result of *func* computed in a dtype that the CPU has a kernel for.

    Halves are computed in float32 and rounded. Integers are computed in float64: some
    CUDA kernels count integers and the CPU's do not.
    """
    schema = func._schema  # noqa: SLF001, torch shows it nowhere else
    wider = INTEGERS if schema.name in COUNTING_OPS else HALVES
    dtypes = [t.dtype for t in _tensors((*args, *kwargs.values())) if t.dtype in wider]
    # The wider tensors are copies, so an operation that writes to its arguments would
    # write to the wrong ones.
    if not dtypes or schema.is_mutable:
        return NO_OUTPUT
    asked, used = dtypes[0], wider[dtypes[0]]

    def widened(tensor: Any) -> Any:
        return tensor.to(used) if tensor.dtype in wider else tensor

    def rounded(value: Any) -> Any:
        return value.to(asked) if value.dtype is used else value

    try:
        result = func(*mapped(widened, args), **_mapped_dict(widened, kwargs))
    except NotImplementedError:
        return NO_OUTPUT
    return mapped(rounded, [result])[0]


def zeros(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Zeros of the shapes that the meta kernel of *func* gives.

    Raises ``NotImplementedError`` if there is no such kernel.
    """
    meta_kwargs = _mapped_dict(_to_meta, kwargs)
    if "device" in meta_kwargs:
        meta_kwargs["device"] = torch.device("meta")
    try:
        shapes = func(*mapped(_to_meta, args), **meta_kwargs)
    except RuntimeError as error:
        # torch has no class of its own for this error, only its words.
        if NO_FAKE not in str(error):
            raise
        raise NotImplementedError from error
    return mapped(_zeros_like, [shapes])[0]


def sizes_from_zeros(
    kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the sizes of what *kernel* computes from zeros on the host.

    Raises ``NotImplementedError`` if the host has no such kernel either, or the tensors
    are sparse.
    """
    found = kernel(*mapped(_zeros_like, args), **_mapped_dict(_zeros_like, kwargs))
    return mapped(_to_meta, [found])[0]


def _to_meta(tensor: Any) -> Any:
    return tensor.to("meta")


def _zeros_like(tensor: Any) -> Any:
    if not tensor.is_meta:
        return tensor
    if tensor.layout is not torch.strided:
        raise NotImplementedError
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype
    ).zero_()


def _tensors(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found


def mapped(change: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """Return *values* with *change* applied to the tensors, those of lists as well."""
    return [_changed(change, value) for value in values]


def _mapped_dict(
    change: Callable[[Any], Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    return {name: _changed(change, value) for name, value in values.items()}


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(change, value))
    return value


# Convolutions: cuDNN's results lie as the image or the weight does.

LAST_FORMATS: Final = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory formats with channels that move fastest, by the number of dimensions."""


def is_last(tensor: Any) -> bool:
    """Whether the channels of *tensor* move fastest."""
    wanted = LAST_FORMATS.get(tensor.dim())
    return wanted is not None and suggest_memory_format(tensor) is wanted


def format_of(tensor: Any, weight: Any) -> Any:
    """Memory format of a convolution's tensors (ConvUtils.h)."""
    if is_last(tensor) or is_last(weight):
        return LAST_FORMATS[tensor.dim()]
    return torch.contiguous_format


_convolution = torch.ops.aten.convolution.default


def convolution(tensor: Any, weight: Any, *options: Any) -> Any:
    """What ``aten::convolution`` gives, in the memory format that CUDA gives it in."""
    found = _convolution(tensor, weight, *options)
    return found.contiguous(memory_format=format_of(tensor, weight))


# Convolutions that some code asks of CUDA by name, each as that of all devices.


def cudnn_convolution(  # noqa: PLR0913, PLR0917, torch's
    tensor: Any,
    weight: Any,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: int,
    *_how: bool,
) -> Any:
    """What ``aten::cudnn_convolution`` gives."""
    return _plain(tensor, weight, None, stride, padding, dilation, groups)


def cudnn_convolution_transpose(  # noqa: PLR0913, PLR0917, torch's
    tensor: Any,
    weight: Any,
    padding: Any,
    more: Any,
    stride: Any,
    dilation: Any,
    groups: int,
    *_how: bool,
) -> Any:
    """What ``aten::cudnn_convolution_transpose`` gives."""
    options = (None, stride, padding, dilation, True, more, groups)
    return convolution(tensor, weight, *options)


def cudnn_convolution_relu(tensor: Any, weight: Any, *options: Any) -> Any:
    """What ``aten::cudnn_convolution_relu`` gives."""
    return _plain(tensor, weight, *options).relu()


def cudnn_convolution_add_relu(
    tensor: Any, weight: Any, added: Any, alpha: Any, *options: Any
) -> Any:
    """What ``aten::cudnn_convolution_add_relu`` gives."""
    share = 1 if alpha is None else alpha
    return _plain(tensor, weight, *options).add(added, alpha=share).relu()


# cuDNN samples bilinearly, with zeros outside, from corner to corner.


def cudnn_grid_sampler(tensor: Any, grid: Any) -> Any:
    """What ``aten::cudnn_grid_sampler`` gives."""
    return torch.grid_sampler_2d(tensor, grid, 0, 0, align_corners=True)


def cudnn_grid_sampler_backward(tensor: Any, grid: Any, grad: Any) -> tuple[Any, ...]:
    """What ``aten::cudnn_grid_sampler_backward`` gives."""
    backward = torch.ops.aten.grid_sampler_2d_backward
    return tuple(backward(grad, tensor, grid, 0, 0, True, [True, True]))  # noqa: FBT003


def cudnn_affine_grid_generator(theta: Any, *size: int) -> Any:
    """What ``aten::cudnn_affine_grid_generator`` gives."""
    return torch.affine_grid_generator(theta, size, align_corners=True)


def cudnn_affine_grid_generator_backward(grad: Any, *size: int) -> Any:
    """What ``aten::cudnn_affine_grid_generator_backward`` gives."""
    return torch.ops.aten.affine_grid_generator_backward(grad, size, True)  # noqa: FBT003


def conv_depthwise(
    tensor: Any, weight: Any, _kernel: Any, bias: Any, *options: Any
) -> Any:
    """What ``aten::conv_depthwise3d`` and ``aten::_conv_depthwise2d`` give."""
    return _plain(tensor, weight, bias, *options, tensor.shape[1])


def _plain(tensor: Any, weight: Any, bias: Any, *options: Any) -> Any:
    *sizes, groups = options
    # Not transposed.
    rest = (False, [0] * len(sizes[0]), groups)
    return convolution(tensor, weight, bias, *sizes, *rest)


_folded = torch.ops.aten.col2im.default


def col2im(tensor: Any, *options: Any) -> Any:
    """What ``aten::col2im`` gives, in memory of the size of its input (Col2Im.cu)."""
    found = _folded(tensor, *options)
    room = found.new_empty(max(tensor.numel(), found.numel()))
    return room[: found.numel()].view(found.shape).copy_(found)


# Cells of recurrent layers, which CUDA computes by one kernel each (RNN.cu).


def lstm_cell(
    gates: Any, of_state: Any, memory: Any, bias: Any = None, state_bias: Any = None
) -> tuple[Any, Any, Any]:
    """What ``aten::_thnn_fused_lstm_cell`` gives; it keeps the gates for backward."""
    both = _sum_of(gates, of_state, bias, state_bias)
    entry, forget, cell, exit_ = both.chunk(4, 1)
    opened = [entry.sigmoid(), forget.sigmoid(), cell.tanh(), exit_.sigmoid()]
    kept = opened[1] * memory + opened[0] * opened[2]
    return opened[3] * kept.tanh(), kept, torch.cat(opened, 1)


def lstm_cell_backward(  # noqa: PLR0913, PLR0917, torch's
    grad: Any,
    grad_memory: Any,
    memory: Any,
    kept: Any,
    workspace: Any,
    has_bias: bool,  # noqa: FBT001
) -> tuple[Any, Any, Any]:
    """What ``aten::_thnn_fused_lstm_cell_backward_impl`` gives."""
    entry, forget, cell, exit_ = workspace.chunk(4, 1)
    reached = kept.tanh()
    grad = torch.zeros_like(kept) if grad is None else grad
    of_kept = grad * exit_ * (1 - reached * reached)
    of_kept = of_kept if grad_memory is None else of_kept + grad_memory
    of_gates = torch.cat(
        [
            of_kept * cell * entry * (1 - entry),
            of_kept * memory * forget * (1 - forget),
            of_kept * entry * (1 - cell * cell),
            grad * reached * exit_ * (1 - exit_),
        ],
        1,
    )
    of_bias = of_gates.sum(0) if has_bias else of_gates.new_empty(0)
    return of_gates, of_kept * forget, of_bias


def gru_cell(
    gates: Any, of_state: Any, state: Any, bias: Any = None, state_bias: Any = None
) -> tuple[Any, Any]:
    """What ``aten::_thnn_fused_gru_cell`` gives; it keeps five parts for backward."""
    reset, update, new = _sum_of(gates, bias).chunk(3, 1)
    by_state = _sum_of(of_state, state_bias).chunk(3, 1)
    reset, update = (reset + by_state[0]).sigmoid(), (update + by_state[1]).sigmoid()
    new = (new + reset * by_state[2]).tanh()
    kept = torch.cat([reset, update, new, state, by_state[2]], 1)
    return new + update * (state - new), kept


def gru_cell_backward(
    grad: Any,
    workspace: Any,
    has_bias: bool,  # noqa: FBT001
) -> tuple[Any, ...]:
    """What ``aten::_thnn_fused_gru_cell_backward`` gives."""
    reset, update, new, state, by_state = workspace.chunk(5, 1)
    of_new = grad * (1 - update) * (1 - new * new)
    of_update = grad * (state - new) * update * (1 - update)
    of_reset = of_new * by_state * reset * (1 - reset)
    of_gates = torch.cat([of_reset, of_update, of_new], 1)
    of_state = torch.cat([of_reset, of_update, of_new * reset], 1)
    sums = [g.sum(0) if has_bias else None for g in (of_gates, of_state)]
    return of_gates, of_state, grad * update, *sums


def _sum_of(*parts: Any) -> Any:
    given = [part for part in parts if part is not None]
    return sum(given[1:], start=given[0])


# Sums of sparse tensors: CUDA puts the elements of both one after the other, and the CPU does
# so only where they lie apart in memory (SparseTensorMath.cpp).

SPARSE_SUMS: Final = frozenset({"add", "add_", "sub", "sub_"})


def with_elements_apart(args: list[Any]) -> list[Any]:
    """*args* of a sum, of which the second has elements that lie apart if both are sparse."""
    first, second, *more = args
    if any(getattr(t, "layout", None) is not torch.sparse_coo for t in (first, second)):
        return args
    values = second._values()  # noqa: SLF001, the public one demands a coalesced one
    apart = torch.stack([values, values], 1)[:, 0]
    return [first, _sparse_like(second, second._indices(), apart), *more]  # noqa: SLF001


_clone = torch.ops.aten.clone.default


def clone(tensor: Any, **options: Any) -> Any:
    """What ``aten::clone`` gives: torch's meta kernel forgets the elements of a sparse one."""
    if not (tensor.is_meta and tensor.layout is torch.sparse_coo):
        return _clone(tensor, **options)
    parts = (tensor._indices(), tensor._values())  # noqa: SLF001
    return _sparse_like(tensor, *(part.contiguous().clone() for part in parts))


def _sparse_like(tensor: Any, indices: Any, values: Any) -> Any:
    return torch.sparse_coo_tensor(
        indices,
        values,
        tensor.shape,
        is_coalesced=tensor.is_coalesced(),
        check_invariants=False,
    )


# Batch normalisation, whose own kernels keep float32, and their parts over several GPUs
# (Normalization.cu).

_normalized = torch.ops.aten.native_batch_norm.default
_normalized_backward = torch.ops.aten.native_batch_norm_backward.default


def is_cudnn_norm(tensor: Any, weight: Any) -> bool:
    """Whether cuDNN normalizes *tensor* (``_select_batch_norm_backend``)."""
    return bool(
        weight is not None
        and tensor.dim() > 2  # noqa: PLR2004, some of space
        and torch.bfloat16 not in {tensor.dtype, weight.dtype}
        and (tensor.dtype is not torch.float16 or weight.dtype is torch.float32)
        and torch._C._get_cudnn_enabled()  # noqa: SLF001, where torch.backends keeps it
    )


def batch_norm(tensor: Any, weight: Any, *more: Any) -> tuple[Any, ...]:
    """What ``aten::native_batch_norm`` gives; an evaluation by cuDNN keeps nothing."""
    found, *kept = _normalized(tensor, weight, *more)
    if not more[3] and not is_cudnn_norm(tensor, weight):
        kept = [found.new_empty(tensor.size(1)) for _ in kept]
    return found, *map(in_float32, kept)


def batch_norm_backward(*args: Any) -> tuple[Any, ...]:
    """What ``aten::native_batch_norm_backward`` gives; an evaluation's is contiguous."""
    found, *of_weights = _normalized_backward(*_statistics_in_dtype(args, 5, 2, 3, 1))
    is_strided = found is not None and not args[7]
    return found.contiguous() if is_strided else found, *of_weights


def _statistics_in_dtype(args: Sequence[Any], first: int, *alike: int) -> list[Any]:
    """*args* with the two statistics from *first* on in the dtype of the CPU's kernel."""
    kind = next(args[place].dtype for place in alike if args[place] is not None)
    both = (first, first + 1)
    return [a.to(kind) if place in both else a for place, a in enumerate(args)]


def in_float32(tensor: Any) -> Any:
    """*tensor* in the dtype in which CUDA's kernels add up its elements."""
    return tensor.to(HALVES.get(tensor.dtype, tensor.dtype))


def batch_norm_stats(tensor: Any, eps: float) -> tuple[Any, ...]:
    """What ``aten::batch_norm_stats`` gives: means and inverse deviations."""
    return tuple(_normalized(in_float32(tensor), *[None] * 4, True, 0.0, eps)[1:])  # noqa: FBT003


def batch_norm_elemt(tensor: Any, weight: Any, bias: Any, *known: Any) -> Any:
    """What ``aten::batch_norm_elemt`` gives."""
    mean, inverse, eps = known
    given = (in_float32(tensor), weight, bias, mean, inverse.pow(-2) - eps)
    return _normalized(*given, False, 0.0, eps)[0].to(tensor.dtype)  # noqa: FBT003


def batch_norm_gather_stats(_: Any, means: Any, inverses: Any, *more: Any) -> Any:
    """What ``aten::batch_norm_gather_stats`` gives, with one count or one a GPU."""
    running_mean, running_var, momentum, eps, counts = more
    share = torch.as_tensor(counts).to(means).expand(means.size(0)).unsqueeze(1)
    total = share.sum()
    mean = (means * share).sum(0) / total
    variances = inverses.pow(-2) - eps + (means - mean).square()
    variance = (variances * share).sum(0) / total
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var), momentum)
    return mean, (variance + eps).rsqrt()


def batch_norm_backward_reduce(grad: Any, tensor: Any, *more: Any) -> tuple[Any, ...]:
    """What ``aten::batch_norm_backward_reduce`` gives, of which not all is asked for."""
    mean, inverse, weight, *asked = more
    given = (in_float32(grad), in_float32(tensor), None, None, None, mean, inverse)
    _, product, total = _normalized_backward(*given, True, 0.0, [False, True, True])  # noqa: FBT003
    kind, asked = mean if weight is None else weight, [asked[0], *asked]
    found = (total, product / inverse, product.to(kind), total.to(kind, copy=True))
    return tuple(f if w else None for f, w in zip(found, asked, strict=True))


def batch_norm_backward_elemt(grad: Any, tensor: Any, *more: Any) -> Any:
    """What ``aten::batch_norm_backward_elemt`` gives."""
    mean, inverse, weight, total, product, counts = more
    grads, elements = grad.movedim(1, -1), tensor.movedim(1, -1)
    slope = inverse.square() * product / counts.sum()
    scale = inverse if weight is None else inverse * weight
    found = (grads - total / counts.sum() - (elements - mean) * slope) * scale
    return found.to(grad.dtype).movedim(-1, 1)


# What layer normalisation keeps of halves is in float32.

_by_rows = torch.ops.aten.native_layer_norm.default
_by_rows_backward = torch.ops.aten.native_layer_norm_backward.default


SCALAR_TYPES: Final = {
    torch.bfloat16: "BFloat16",
    torch.float16: "Half",
    torch.float32: "Float",
    torch.float64: "Double",
}
"""What C++ calls a dtype (ScalarType.h)."""


def _refuse_others(tensor: Any, *parameters: Any) -> None:
    """Raise as CUDA's kernels of these layers do for parameters of another dtype."""
    for found in parameters:
        if found is not None and found.dtype != tensor.dtype:
            wanted, named = (SCALAR_TYPES.get(t.dtype) for t in (tensor, found))
            msg = f"expected scalar type {wanted} but found {named}"
            raise RuntimeError(msg)


def layer_norm(tensor: Any, shape: Any, *options: Any) -> tuple[Any, ...]:
    """What ``aten::native_layer_norm`` gives."""
    _refuse_others(tensor, *options[:2])
    found, *kept = _by_rows(tensor, shape, *options)
    return found, *map(in_float32, kept)


_by_groups = torch.ops.aten.native_group_norm.default


def group_norm(tensor: Any, *options: Any) -> Any:
    """What ``aten::native_group_norm`` gives."""
    _refuse_others(tensor, *options[:2])
    return _by_groups(tensor, *options)


def layer_norm_backward(*args: Any) -> Any:
    """What ``aten::native_layer_norm_backward`` gives."""
    return _by_rows_backward(*_statistics_in_dtype(args, 3, 5, 1))


# Softmax of halves in float32, which the CPU's kernels refuse.


def _softmax_of_halves(softmax: Any) -> Callable[..., Any]:
    def kernel(tensor: Any, dim: int, half_to_float: bool) -> Any:  # noqa: FBT001
        return softmax(tensor.float() if half_to_float else tensor, dim, False)  # noqa: FBT003

    return kernel


def _softmax_backward_of_halves(backward: Any) -> Callable[..., Any]:
    def kernel(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
        return backward(grad, output, dim, grad.dtype).to(dtype)

    return kernel


_log_sigmoid = torch.ops.aten.log_sigmoid_forward.default


def log_sigmoid_backward(grad: Any, tensor: Any, _: Any) -> Any:
    """What ``aten::log_sigmoid_backward`` gives, which keeps nothing on CUDA."""
    return torch.ops.aten.log_sigmoid_backward(grad, tensor, _log_sigmoid(tensor)[1])


FUSED_LAYERS: Final[Mapping[str, Callable[..., Any]]] = {
    **{
        name: _softmax_of_halves(getattr(torch.ops.aten, name).default)
        for name in ("_log_softmax", "_softmax")
    },
    **{
        name: _softmax_backward_of_halves(getattr(torch.ops.aten, name).default)
        for name in ("_log_softmax_backward_data", "_softmax_backward_data")
    },
    "batch_norm_backward_elemt": batch_norm_backward_elemt,
    "batch_norm_backward_reduce": batch_norm_backward_reduce,
    "batch_norm_elemt": batch_norm_elemt,
    "batch_norm_gather_stats": batch_norm_gather_stats,
    "batch_norm_gather_stats_with_counts": batch_norm_gather_stats,
    "batch_norm_stats": batch_norm_stats,
    "clone": clone,
    "col2im": col2im,
    "_conv_depthwise2d": conv_depthwise,
    "conv_depthwise3d": conv_depthwise,
    "convolution": convolution,
    "cudnn_affine_grid_generator": cudnn_affine_grid_generator,
    "cudnn_affine_grid_generator_backward": cudnn_affine_grid_generator_backward,
    "cudnn_convolution": cudnn_convolution,
    "cudnn_convolution_add_relu": cudnn_convolution_add_relu,
    "cudnn_convolution_relu": cudnn_convolution_relu,
    "cudnn_convolution_transpose": cudnn_convolution_transpose,
    "cudnn_grid_sampler": cudnn_grid_sampler,
    "cudnn_grid_sampler_backward": cudnn_grid_sampler_backward,
    "log_sigmoid_backward": log_sigmoid_backward,
    "log_sigmoid_forward": lambda t: (_log_sigmoid(t)[0], t.new_empty(0)),
    "native_batch_norm": batch_norm,
    "native_batch_norm_backward": batch_norm_backward,
    "native_group_norm": group_norm,
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
}
"""What to run on the host in place of a kernel that only CUDA has."""


# Two of four elements: kernels that only CUDA has are followed by their sizes.


def _compressed(tensor: Any) -> Any:
    """Values and places of *tensor*, by rows: cuSPARSELt packs 16 bytes into 10."""
    packed = 10 if tensor.itemsize == 1 else 9
    return tensor.new_zeros(tensor.size(0), tensor.size(1) * packed // 16)


def _tiled(tensor: Any, _: str = "", use_cutlass: bool = True) -> tuple[Any, ...]:  # noqa: FBT001, FBT002
    """*tensor* and its transpose with their places, and a mask for each tile."""
    rows, columns = tensor.shape
    both = [tensor, tensor.t()]
    if use_cutlass:
        parts = [(_halved(t), t.new_zeros(t.size(0), t.size(1) // 16)) for t in both]
    else:
        parts = [(_compressed(t), t.new_zeros(0)) for t in both]
    masks = tensor.new_zeros(rows // 8, columns // 8, 16, dtype=torch.uint8)
    return (*parts[0], *parts[1], masks)


def _halved(tensor: Any) -> Any:
    return tensor.new_zeros(tensor.size(0), tensor.size(1) // 2)


SPARSE_HALVES: Final[Mapping[str, Callable[..., Any]]] = {
    "_cslt_compress": _compressed,
    "_cslt_sparse_mm_search": lambda *_, **__: 0,
    "_sparse_semi_structured_apply": lambda t, _: (_halved(t), _halved(t.t())),
    "_sparse_semi_structured_apply_dense": lambda t, _: torch.zeros_like(t),
    "_sparse_semi_structured_tile": _tiled,
}
"""Results without values, of operations that have not even a meta kernel."""


# Losses with a result that lies in memory for all elements, of which it is one.


def _in_memory_of_all(loss: Any) -> Callable[..., Any]:
    """Wrap *loss*, of which the output has the inputs' size until it is reduced (Loss.cpp)."""

    def kernel(tensor: Any, target: Any, reduction: int = 1, *rest: Any) -> Any:
        found = loss(tensor, target, reduction, *rest)
        elements = torch.broadcast_shapes(tensor.shape, target.shape).numel()
        if reduction == 0 or not elements:
            return found
        return found.new_empty(elements)[:1].view(()).copy_(found)

    return kernel


FUSED_LOSSES: Final[Mapping[str, Callable[..., Any]]] = {
    name: _in_memory_of_all(getattr(torch.ops.aten, name).default)
    for name in ("mse_loss", "smooth_l1_loss")
}
"""What to run on the host so that the result's storage is that of CUDA."""
