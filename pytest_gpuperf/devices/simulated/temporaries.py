"""Memory that a CUDA kernel takes for itself and gives back before it is done.

A GPU tensor sees none of it: an operation is run for its results. The sizes are those that
torch's CUDA sources compute on the host, from shapes, strides and properties of the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, Final

import torch
from torch.autograd import forward_ad

from .guesses import lengths_of
from .kernels import format_of, in_float32, is_cudnn_norm, is_last
from .memory import SIMULATED_MEMORY
from .operation import (
    MASKS,
    NO_TEMPORARIES,
    OpCall,
    Rule,
    Temporaries,
    copies_of,
    nbytes_of,
)
from .sorting import POSITION, scan_bytes, sort_bytes
from .specification import PROPERTIES
from .transfers import is_dense


# Buffers of a reduction that several blocks of threads share (Reduce.cuh).

MOST_THREADS: Final = 512
LEAST_VALUES: Final = 16
MOST_VALUES: Final = 256
"""Values a thread reduces, at least and at most, before blocks share an output."""

VECTOR: Final = 4
INT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Extent:
    """One dimension of a reduction: its size, and the strides of input and output.

    The output does not move in a dimension that is reduced.
    """

    size: int
    stride: int
    output_stride: int

    @property
    def is_reduced(self) -> bool:
        """Whether the output has one value for all of it."""
        return self.output_stride == 0

    def follows(self, other: Extent) -> bool:
        """Whether both are one dimension in memory, of which *other* moves faster."""
        if 1 in {self.size, other.size}:
            return True
        return (
            other.size * other.stride == self.stride
            and other.size * other.output_stride == self.output_stride
        )

    def joined(self, other: Extent) -> Extent:
        """Both as one, of which *other* moves faster."""
        faster = self if other.size == 1 else other
        return Extent(self.size * other.size, faster.stride, faster.output_stride)


def reduction_buffers(
    tensor: Any, dims: Sequence[int] | None, value_bytes: int
) -> Sequence[int]:
    """What reducing *dims* of *tensor* takes if one block cannot make an output alone.

    *value_bytes* are those of what is accumulated. Empty if nothing is shared.
    """
    extents = _extents(tensor, dims)
    if not tensor.numel():
        return ()
    inputs = math.prod(e.size for e in extents if e.is_reduced)
    launch = _Launch(tensor.numel() // inputs, inputs, value_bytes)
    return launch.buffers(tensor, extents)


def _extents(tensor: Any, dims: Sequence[int] | None) -> list[Extent]:
    """Dimensions as TensorIterator orders and joins them, the fastest first."""
    reduced = {d % tensor.dim() for d in dims} if dims else set(range(tensor.dim()))
    extents, output_stride = [], 1
    for dim in reversed(range(tensor.dim())):
        size, is_reduced = tensor.size(dim), dim in reduced
        kept = 0 if is_reduced else output_stride
        extents.append(Extent(size, tensor.stride(dim), kept))
        output_stride *= 1 if is_reduced else size
    return _joined(_sorted(extents))


def _sorted(extents: list[Extent]) -> list[Extent]:
    found = list(extents)
    for last in range(1, len(found)):
        second = last
        for first in range(last - 1, -1, -1):
            order = _order(found[first], found[second])
            if order > 0:
                found[first], found[second] = found[second], found[first]
                second = first
            elif order < 0:
                break
    return found


def _order(first: Extent, second: Extent) -> int:
    if first.is_reduced != second.is_reduced:
        return 1 if second.is_reduced else -1
    pairs = (
        (first.output_stride, second.output_stride),
        (first.stride, second.stride),
    )
    for one, other in pairs:
        if not one or not other:
            continue
        if one != other:
            return 1 if one > other else -1
        if first.size > second.size:
            return 1
    return 0


def _joined(extents: Sequence[Extent]) -> list[Extent]:
    found: list[Extent] = []
    for extent in extents:
        if found and extent.follows(found[-1]):
            found[-1] = extent.joined(found[-1])
        else:
            found.append(extent)
    return found


@dataclass(slots=True)
class _Launch:
    """How a reduction is divided among threads: ``setReduceConfig`` of Reduce.cuh."""

    outputs: int
    inputs: int
    value_bytes: int
    output_vector: int = 1

    def buffers(self, tensor: Any, extents: Sequence[Extent]) -> Sequence[int]:
        reduced = [e for e in extents if e.is_reduced]
        kept = [e for e in extents if not e.is_reduced]
        is_fast = not kept or (bool(reduced) and reduced[0].stride < kept[0].stride)
        width, height = self._block(tensor, extents, is_fast=is_fast)
        step_input, step_output = (width, 1) if is_fast else (1, width)
        values = -(-self.inputs // step_input)
        if values < min(height * LEAST_VALUES, MOST_VALUES):
            return ()  # each row of threads has outputs of its own
        values = -(-self.inputs // (step_input * height))
        grid = -(-(self.outputs // self.output_vector) // step_output)
        wanted = PROPERTIES.multi_processor_count * (
            PROPERTIES.max_threads_per_multi_processor // (width * height)
        )
        if values < MOST_VALUES or grid > wanted:
            return ()
        blocks = max(
            min(-(-wanted // grid), -(-values // LEAST_VALUES)),
            -(-values // MOST_VALUES),
        )
        if blocks <= 1:
            return ()
        shared = self.value_bytes * self.outputs * blocks
        if not is_fast:
            shared *= width * self.output_vector
        return shared, INT_BYTES * grid

    def _block(
        self, tensor: Any, extents: Sequence[Extent], *, is_fast: bool
    ) -> tuple[int, int]:
        """Width and height of a block of threads."""
        reduced = sum(e.is_reduced for e in extents)
        along, across = (
            (self.inputs, self.outputs) if is_fast else (self.outputs, self.inputs)
        )
        fastest = extents[0 if is_fast else reduced].stride if extents else 1
        if fastest == 1 and is_fast and along >= 128 and reduced == 1:  # noqa: PLR2004, torch's
            along //= VECTOR
        elif fastest == 1 and not is_fast:
            self.output_vector = _output_vector(tensor, extents, reduced)
            along //= self.output_vector
        most = MOST_THREADS // self.output_vector
        wide, high = (min(_power_below(n), most) for n in (along, across))
        height = min(high, most // min(wide, PROPERTIES.warp_size))
        return min(wide, most // height), height


def _output_vector(tensor: Any, extents: Sequence[Extent], output: int) -> int:
    """How many outputs a thread loads at once."""
    strides = [e.stride for place, e in enumerate(extents) if place != output]
    vector = VECTOR
    for number in (tensor.storage_offset(), extents[output].size, *strides):
        while number % vector:
            vector //= 2
    return vector


def _power_below(number: int) -> int:
    """Largest power of two up to *number*, 1 at least."""
    return 1 << max(number, 1).bit_length() - 1


# What an operation takes, by its name.


def _contiguous(*names: str) -> Rule:
    """Rule of a kernel that wants the arguments *names* contiguous."""

    def rule(call: OpCall) -> Temporaries:
        return Temporaries(before=copies_of(*(call[name] for name in names)))

    return rule


def _contiguous_after(*names: str) -> Rule:
    """The same of one that makes its outputs first."""

    def rule(call: OpCall) -> Temporaries:
        return Temporaries(phases=[copies_of(*(call[name] for name in names))])

    return rule


def _formatted_after(call: OpCall) -> Temporaries:
    """Of a pool's backward, which wants the gradient in the memory format of its input."""
    chosen = format_of(call["self"], call["self"])
    return Temporaries(phases=[_in_format(chosen, call["grad_output"])])


OPMATH_BYTES: Final = {
    torch.float64: 8,
    torch.complex64: 8,
    torch.complex128: 16,
    torch.int64: 8,
}
"""What a sum is accumulated in, where it is not a float32."""

FUSED_CASTS: Final = frozenset(
    {(torch.float16, torch.float32), (torch.bfloat16, torch.float32)}
)
"""Casts that the kernel of a reduction does itself, on CUDA alone (ReduceOpsUtils.h)."""


def _with_tangent(rule: Rule) -> Rule:
    """Wrap *rule* of a normalisation: its tangent is computed in place on CUDA alone."""

    def named(call: OpCall) -> Temporaries:
        if forward_ad._current_level >= 0:  # noqa: SLF001, there is no public one
            reason = "some are computed in place"
            SIMULATED_MEMORY.leave_unchecked("tangents of a norm", reason)
        return rule(call)

    return named


def _dims(call: OpCall) -> Sequence[int] | None:
    dims = call["dim"]
    return [dims] if isinstance(dims, int) else dims


def _sum(call: OpCall) -> Temporaries:
    tensor, dtype = call["self"], call["dtype"]
    if dtype is None:
        is_float = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        dtype = tensor.dtype if is_float else torch.int64
    cast = []
    if dtype is not tensor.dtype and (tensor.dtype, dtype) not in FUSED_CASTS:
        tensor = torch.empty_like(tensor, dtype=dtype, device="meta")
        cast = [nbytes_of(tensor)]
    value_bytes = OPMATH_BYTES.get(dtype, 4)
    buffers = reduction_buffers(tensor, _dims(call), value_bytes)
    return Temporaries(phases=[[*cast, *buffers]])


def _reduced(value_bytes: Callable[[Any], int]) -> Rule:
    def rule(call: OpCall) -> Temporaries:
        tensor = call["self"]
        buffers = reduction_buffers(tensor, _dims(call), value_bytes(tensor))
        return Temporaries(phases=[buffers])

    return rule


def _element(tensor: Any) -> int:
    return int(tensor.element_size())


def _with_index(_: Any) -> int:
    return 16


def _welford(tensor: Any) -> int:
    return 32 if tensor.dtype is torch.float64 else 16


def _largest(call: OpCall) -> Temporaries:
    """Of ``max`` and ``min``: of all elements, or along a dimension with positions."""
    tensor, dims = call["self"], _dims(call)
    value_bytes = _element(tensor) if dims is None else _with_index(tensor)
    return Temporaries(phases=[reduction_buffers(tensor, dims, value_bytes)])


def _logsumexp(call: OpCall) -> Temporaries:
    """Maxima, kept and squeezed, where they are infinite, and exponentials."""
    tensor = call["self"]
    rows = tensor.amax(_dims(call) or [], keepdim=True)
    sizes = [nbytes_of(rows), nbytes_of(rows), rows.numel(), nbytes_of(tensor)]
    return Temporaries(before=sizes)


# Matrices that cuBLAS cannot read as they lie are copied (Blas.cpp).


def _is_readable(matrix: Any) -> bool:
    rows, columns = matrix.size(-2), matrix.size(-1)
    down, along = matrix.stride(-2), matrix.stride(-1)
    return bool(
        (along == 1 and down >= max(1, columns))
        or (down == 1 and along >= max(1, rows))
    )


def _matrices(*names: str) -> Rule:
    def rule(call: OpCall) -> Temporaries:
        copied = [
            nbytes_of(call[name]) for name in names if not _is_readable(call[name])
        ]
        return Temporaries(phases=[copied])

    return rule


# Convolutions: cuDNN wants all tensors in one memory format (Convolution.cpp).


def _in_format(memory_format: Any, *tensors: Any) -> list[int]:
    return [
        nbytes_of(tensor)
        for tensor in tensors
        if not tensor.is_contiguous(memory_format=memory_format)
    ]


def _is_by_channel(call: OpCall) -> bool:
    """Whether torch's own kernel for depthwise convolutions runs, and not cuDNN's."""
    tensor, weight = call["input"], call["weight"]
    channels = tensor.size(1)
    if (
        call["transposed"]
        or call["groups"] != channels
        or channels == 1
        or weight.size(0) % channels
        or tensor.dim() != 4  # noqa: PLR2004, two dimensions of space
    ):
        return False
    return not (is_last(tensor) or is_last(weight))


def _convolution(call: OpCall) -> Temporaries:
    tensor, weight = call["input"], call["weight"]
    if _is_by_channel(call):
        return Temporaries(before=copies_of(tensor, weight))
    chosen = format_of(tensor, weight)
    before = _in_format(chosen, tensor)
    return Temporaries(before=before, phases=[_in_format(chosen, weight)])


def _convolution_backward(call: OpCall) -> Temporaries:
    """Copies serve the gradients of input and weight, and are gone before that of the bias."""
    grad, tensor, weight = call["grad_output"], call["input"], call["weight"]
    bias = ((), _of_bias(grad) if call["output_mask"][2] else ())
    if _is_by_channel(call):
        both = (copies_of(grad, tensor), ())
        return Temporaries((), [copies_of(weight)], {0: both, 1: both, 2: bias})
    chosen = format_of(tensor, weight)
    copies, of_weight = (_in_format(chosen, grad, t) for t in (weight, tensor))
    of_input = ((), copies) if chosen is torch.contiguous_format else (copies, ())
    return Temporaries(outputs={0: of_input, 1: (of_weight, ()), 2: bias})


def _of_bias(grad: Any) -> Sequence[int]:
    dims = [d for d in range(grad.dim()) if d != 1]
    return reduction_buffers(grad, dims, 4)


# Batch normalization: cuDNN's, or torch's own kernels (Normalization.cu, Normalization.cuh).

BLOCK_THREADS: Final = 512
TILE: Final = 32
PER_THREAD: Final = 16
MOST_BLOCKS: Final = 128
LEAST_ROWS: Final = 8


def _staging(tensor: Any, values: int) -> Sequence[int]:
    """What blocks share that each sum up a part of a channel."""
    channels = tensor.size(1)
    rows = tensor.numel() // channels
    wide = min(_power_below(channels), TILE)
    high = min(_power_below(-(-rows // PER_THREAD)), BLOCK_THREADS // wide)
    if wide * high != BLOCK_THREADS:
        wide = min(_power_below(channels), BLOCK_THREADS // high)
    blocks = min(-(-rows // (high * PER_THREAD)), MOST_BLOCKS)
    if blocks < LEAST_ROWS:
        return ()
    shared = values * channels * blocks * 4
    return shared, INT_BYTES * -(-channels // wide)


def _is_by_rows(tensor: Any) -> bool:
    """Whether a channel's elements lie apart, each next to those of the other channels."""
    return tensor.dim() == 2 or is_last(tensor)  # noqa: PLR2004, rows of channels


def _is_strided(tensor: Any) -> bool:
    """Whether only kernels for any strides can read it: channels last of a volume."""
    is_flat = tensor.dim() == 4 and is_last(tensor)  # noqa: PLR2004, of an image
    return not (is_flat or tensor.is_contiguous())


def _of_strided(tensor: Any) -> Sequence[int]:
    """What its mean and variance take: they are computed as ``var_mean`` does it."""
    dims = [d for d in range(tensor.dim()) if d != 1]
    is_cast = tensor.dtype is torch.bfloat16
    read = in_float32(tensor) if is_cast else tensor
    copied = [nbytes_of(read)] if is_cast else []
    return *copied, *reduction_buffers(read, dims, _welford(read))


def _batch_norm(call: OpCall) -> Temporaries:
    tensor = call["input"]
    if not call["training"] or is_cudnn_norm(tensor, call["weight"]):
        return NO_TEMPORARIES
    if _is_strided(tensor):
        return Temporaries(phases=[_of_strided(tensor)])
    return Temporaries(phases=[_staging(tensor, 4) if _is_by_rows(tensor) else ()])


def _batch_norm_backward(call: OpCall) -> Temporaries:
    tensor, grad, weight = call["input"], call["grad_out"], call["weight"]
    is_cudnn = is_cudnn_norm(tensor, weight)
    if call["train"] and is_cudnn:
        # It wants one memory format.
        return Temporaries(before=_in_format(format_of(tensor, tensor), grad))
    if not _is_by_rows(tensor):
        return NO_TEMPORARIES
    # cuDNN's forward of an evaluation keeps no deviations.
    channels = tensor.size(1) * 4
    sums = [channels] * (2 * (call["train"] or weight is not None) + is_cudnn)
    staging = _staging(tensor, 2) if sums and _is_by_rows(grad) else ()
    return Temporaries(before=sums, outputs={2: ((), staging)})


def _softmax_backward(call: OpCall) -> Temporaries:
    """The gradient times the output is a tensor of its own (SoftMax.cu)."""
    grad, output = call["grad_output"], call["output"]
    # The product has the strides of the gradient, unless that is expanded.
    alike = output if 0 in grad.stride() else grad
    return Temporaries(phases=[[nbytes_of(grad), *copies_of(alike, output)]])


def _group_norm(call: OpCall) -> Temporaries:
    """A factor and a summand for each image and channel (group_norm_kernel.cu)."""
    pairs = call["N"] * call["C"] * 4
    return Temporaries(phases=[[pairs, pairs]])


def _group_norm_backward(call: OpCall) -> Temporaries:
    pairs, groups = call["N"] * call["C"] * 4, call["N"] * call["group"] * 4
    before = copies_of(call["grad_out"])
    return Temporaries(before=before, phases=[[pairs, pairs, groups, groups, pairs]])


# The fast path of attention and of an encoder's layer, which is one operation each.


def _fast_attention(call: OpCall, query: Any, heads: int, weights: int) -> int:
    """Most bytes that it has at once, its results among them (attention.cu)."""
    own, places = nbytes_of(query), int(query.size(0) * heads * query.size(1) ** 2)
    scores = places * int(query.element_size())
    if call["mask"] is not None:
        # That of tokens, or one of all scores.
        hidden = call["mask"].numel() if call["mask_type"] == 1 else places
        return max(6 * own, 3 * own + 2 * scores + hidden)
    return 4 * own + scores + max(own, weights) if weights else 5 * own


def _native_attention(call: OpCall) -> Temporaries:
    query, heads = call["query"], call["num_head"]
    weights = query.size(0) * query.size(1) ** 2 * query.element_size()
    weights *= call["need_weights"] * (1 if call["average_attn_weights"] else heads)
    most = _fast_attention(call, query, heads, weights)
    return Temporaries(phases=[[most - nbytes_of(query) - weights]])


def _encoder_layer(call: OpCall) -> Temporaries:
    """Attention, or what it made with what lies between two linear layers."""
    own = nbytes_of(call["src"])
    hidden = own // call["embed_dim"] * call["ffn_weight_1"].size(0)
    attention = _fast_attention(call, call["src"], call["num_heads"], 0)
    normed = own * call["norm_first"]
    return Temporaries(phases=[[normed, max(attention - own, own + hidden)]])


def _positions(indices: Sequence[Any]) -> tuple[list[int], int, list[bool]]:
    """Bytes of where each mask is true, the number of positions, which dimensions they are in."""
    places, shapes, is_indexed = [], [], []
    for index in indices:
        dims = 1
        if index is not None and index.dtype in MASKS:
            dims = index.dim()
            count = index.numel() if index.is_meta else int(index.count_nonzero())
            places.append(POSITION * count * dims)
            shapes.append(torch.Size([count]))
        elif index is not None:
            shapes.append(index.shape)
        is_indexed += [index is not None] * dims
    return places, torch.broadcast_shapes(*shapes).numel(), is_indexed


def _index_put(call: OpCall) -> Temporaries:
    """Indices are made one number each and sorted, to add up in their order."""
    places, count, is_indexed = _positions(call["indices"])
    if not call["accumulate"]:
        # A number is filled in where a mask is true.
        return Temporaries(before=places if call["values"].dim() else ())
    largest = math.prod(compress(call["self"].shape, is_indexed)) - 1
    numbers, values = POSITION * count, copies_of(call["values"])
    sorting = sort_bytes(count, torch.int64, largest)
    # The places are gone once each position is a number.
    phase = [*values, numbers, numbers, numbers, sorting]
    return Temporaries(phases=[[(*places, numbers), numbers, *phase]])


def _drawn(call: OpCall) -> Temporaries:
    """By what each weight is divided; or shares of their sum, added up and copied."""
    return Temporaries([nbytes_of(call["self"])] * (3 if call["replacement"] else 1))


def _masked_scatter(call: OpCall) -> Temporaries:
    """How many elements are true before each one."""
    count = call["mask"].numel()
    return Temporaries(phases=[[POSITION * count, scan_bytes(count, torch.int64)]])


def _count_nonzero(call: OpCall) -> Temporaries:
    """Whether each is not zero, and that as whole numbers."""
    counted = torch.empty_like(call["self"], dtype=torch.int64, device="meta")
    flags = counted.numel() * (call["self"].dtype is not torch.bool)
    buffers = reduction_buffers(counted, _dims(call), 4)
    return Temporaries([flags], [[nbytes_of(counted), *buffers]])


def _euclidean_dist(call: OpCall) -> Temporaries:
    """Sums of squares and ones are put next to the rows, of one after the other (Distance.cpp)."""
    first, second = call["x1"], call["x2"]
    one, other = (nbytes_of(rows) // rows.size(-1) for rows in (first, second))
    scaled, wide = nbytes_of(first), nbytes_of(first) + 2 * one
    columns = (one, one, other, other)
    last = nbytes_of(second) + 2 * other
    return Temporaries([(*columns, scaled, wide), wide, (other, other, last), last])


def _cdist_backward(call: OpCall) -> Temporaries:
    """The share of each pair of rows in each gradient, added up (DistanceKernel.cu)."""
    row = call["x1"].size(-1) * call["x1"].element_size()
    pairs = call["cdist"].numel() if call["p"] else 0
    return Temporaries(phases=[[pairs * row]])


def _rolled(call: OpCall) -> Temporaries:
    """All dimensions but the last one are rolled before it, each into a tensor of its own."""
    tensor = call["self"]
    copies = copies_of(tensor) if len(call["dims"]) <= 1 else []
    before = [nbytes_of(tensor)] * (len(call["dims"]) - 1)
    return Temporaries(before, [copies])


def _copied(*names: str) -> Rule:
    """What the library changes in place is copied for it."""
    return lambda call: Temporaries([nbytes_of(call[name]) for name in names])


def _norm_backward(call: OpCall) -> Temporaries:
    """The input in one piece before the outputs, the gradient after them."""
    return Temporaries(
        before=copies_of(call["input"]), phases=[copies_of(call["grad_out"])]
    )


def _grouped_product(call: OpCall) -> Temporaries:
    """Arguments of each group and a workspace of the kernel, which takes bfloat16 (GroupMM.cu)."""
    tensor, ends = call["self"], call["offs"]
    if tensor.dtype is not torch.bfloat16:
        return NO_TEMPORARIES
    groups = tensor.size(0) if ends is None else ends.numel()
    workspace = PROPERTIES.multi_processor_count * 512
    return Temporaries(phases=[[60 * groups, workspace]])


CHUNK: Final = 2**16
"""Numbers that a block of threads reads of one tensor in a list (MultiTensorApply.cuh)."""

NORMS: Final = frozenset({0, 1, 2, math.inf})
"""Orders of norms that one kernel computes of a list (ForeachReduceOp.cu)."""


def _norms(call: OpCall) -> Temporaries:
    """A partial norm of each chunk, as many for each tensor as the largest one has."""
    tensors, order = call["self"], call["ord"]
    dtype = tensors[0].dtype
    is_fast = dtype.is_floating_point and all(
        tensor.dtype is dtype and is_dense(tensor) for tensor in tensors
    )
    if not is_fast or order not in NORMS:
        return NO_TEMPORARIES
    chunks = max(-(-tensor.numel() // CHUNK) for tensor in tensors)
    one = OPMATH_BYTES.get(call["dtype"] or dtype, 4)
    return Temporaries(before=[len(tensors) * chunks * one])


def _packed(call: OpCall) -> Temporaries:
    """Steps of equally many sequences at a time are copied, and joined (PackedSequence.cpp)."""
    tensor, first = call["input"], call["batch_first"]
    lengths = lengths_of(tensor, call["lengths"], first).tolist()
    tensor = tensor.transpose(0, 1) if first else tensor
    ends = sorted({0, *lengths})
    parts = [
        tensor[begin:end, : sum(length >= end for length in lengths)]
        for begin, end in pairwise(ends)
    ]
    return Temporaries(before=copies_of(*parts))


def _full_loss(call: OpCall) -> tuple[int, Sequence[int]]:
    """Bytes of a loss that is computed in full, and what reducing it takes."""
    if call["reduction"] == 0:
        return 0, ()
    return nbytes_of(call["self"]), reduction_buffers(call["self"], None, 4)


def _elementwise_loss(call: OpCall) -> Temporaries:
    size, buffers = _full_loss(call)
    return Temporaries(before=[size], phases=[buffers])


def _loss_of_logits(call: OpCall) -> Temporaries:
    """Logarithms, their weights, and one less the target, in which the loss comes to be."""
    size, buffers = _full_loss(call)
    logarithms, weight = nbytes_of(call["self"]), call["pos_weight"]
    weights = (
        0 if weight is None else nbytes_of(weight),
        logarithms * (weight is not None),
    )
    return Temporaries([logarithms, weights, size], [buffers])


def _soft_margin_backward(call: OpCall) -> Temporaries:
    """The negative target, its product with the input, and the exponential, which stays."""
    size = nbytes_of(call["self"])
    return Temporaries([(size, size, size), size])


def _loss_in_its_output(call: OpCall) -> Temporaries:
    # The output is made for all elements, and another for the reduction.
    size, buffers = _full_loss(call)
    return Temporaries(phases=[[size, *buffers]])


_of_grad: Final = _contiguous_after("grad_output")

RULES: Final[Mapping[str, Rule]] = {
    name: rule
    for names, rule in (
        ("_adaptive_avg_pool2d_backward avg_pool2d_backward", _formatted_after),
        ("max_pool2d_with_indices_backward", _formatted_after),
        ("addmm", _matrices("mat1", "mat2")),
        ("all any", _reduced(lambda _: 1)),
        ("amax amin", _reduced(_element)),
        ("argmax argmin", _reduced(_with_index)),
        ("baddbmm", _matrices("batch1", "batch2")),
        ("binary_cross_entropy huber_loss smooth_l1_loss", _elementwise_loss),
        ("binary_cross_entropy_with_logits", _loss_of_logits),
        ("bmm mm", _matrices("self", "mat2")),
        ("_cdist_backward", _cdist_backward),
        ("cholesky_inverse", _copied("self", "self")),
        ("cholesky_solve", _copied("input2")),
        ("col2im", _contiguous_after("self")),
        ("convolution", _convolution),
        ("convolution_backward", _convolution_backward),
        ("count_nonzero", _count_nonzero),
        ("cudnn_affine_grid_generator_backward", _contiguous("grad")),
        ("cudnn_grid_sampler", _contiguous("self", "grid")),
        ("cudnn_grid_sampler_backward", _contiguous("self", "grid", "grad_output")),
        ("_euclidean_dist", _euclidean_dist),
        ("_foreach_norm", _norms),
        ("_fused_rms_norm native_layer_norm", _with_tangent(_contiguous("input"))),
        ("_fused_rms_norm_backward native_layer_norm_backward", _norm_backward),
        ("_grouped_mm", _grouped_product),
        ("_fft_c2r im2col", _copied("self")),
        ("index", lambda call: Temporaries(_positions(call["indices"])[0])),
        ("index_put index_put_", _index_put),
        ("linalg_inv_ex", _copied("A", "A")),
        ("_linalg_svd", _copied("A")),
        ("linalg_vector_norm", _reduced(lambda t: 4 + 4 * (t.dtype is torch.float64))),
        ("_log_softmax _softmax", _contiguous("self")),
        ("_log_softmax_backward_data adaptive_max_pool2d_backward", _of_grad),
        ("reflection_pad2d_backward upsample_bicubic2d_backward", _of_grad),
        ("upsample_bilinear2d_backward upsample_nearest2d_backward", _of_grad),
        ("logsumexp", _logsumexp),
        ("masked_scatter masked_scatter_", _masked_scatter),
        ("masked_select", lambda call: Temporaries(_positions([call["mask"]])[0])),
        ("max min", _largest),
        ("mean prod sum", _sum),
        ("mse_loss", _loss_in_its_output),
        ("multinomial", _drawn),
        ("native_batch_norm", _with_tangent(_batch_norm)),
        ("native_batch_norm_backward", _batch_norm_backward),
        ("native_group_norm", _with_tangent(_group_norm)),
        ("native_group_norm_backward", _group_norm_backward),
        ("_native_multi_head_attention", _native_attention),
        ("_pack_padded_sequence", _packed),
        ("roll", _rolled),
        ("_softmax_backward_data", _softmax_backward),
        ("soft_margin_loss_backward", _soft_margin_backward),
        ("std var var_mean", _reduced(_welford)),
        ("_transformer_encoder_layer_fwd", _encoder_layer),
    )
    for name in names.split()
}
"""Which operation takes what, by its name without namespace and overload."""
