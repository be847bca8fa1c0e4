"""Facts about an operation that do not depend on its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import torch
from torch._C import DispatchKey
from torch.utils.flop_counter import flop_registry

from . import attention as fused_attention
from .attention import attention
from .backward_rules import FORWARD_OPS, FRESH_TARGETS, SUM
from .embeddings import BAG_ORDER, EMBEDDING_KERNELS, EMBEDDING_MEMORY
from .kernels import (
    ABSENT_ON_CUDA,
    FUSED_LAYERS,
    FUSED_LOSSES,
    HOST_KERNELS,
    NO_CPU_KERNEL,
    PRODUCTS_IN_DTYPE,
    SPARSE_HALVES,
)
from .layout_rules import LAYOUT_RULES, SPARSE_RULES
from .memory import MATRIX_PRODUCTS
from .mixed_devices import mixes_by_design
from .modules import COMPOSED_FOR_CUDA
from .recorder import WATCH
from .recurrent import CUDNN_FLOPS, CUDNN_KERNELS, RECURRENT_LAYERS
from .sorting import SORT_MEMORY, UNIQUE_KERNELS
from .sparse_memory import SPARSE_MEMORY
from .sync_conditions import SyncRule
from .sync_rules import INDEXING, SYNC_RULES, rules_by_op
from .temporaries import RULES


# Floating point operations of a step, by torch's own formulas.
#
# They are those of ``torch.utils.flop_counter``, which counts products, convolutions
# and attention, a multiplication and an addition as two, and nothing else.

MOST_KNOWN: Final = 10_000


class Flops:
    """Counts the operations of one overload, by shapes, with a cache.

    A formula takes as long as the product of small matrices that it counts, and the
    same shapes come again in every step.
    """

    __slots__ = ("_formula", "_known")

    def __init__(self, formula: Callable[..., int]) -> None:
        self._formula = formula
        self._known: dict[object, int] = {}

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
        """Floating point operations of the call that gave *result*."""
        key = (_form(args), _form([*kwargs.items()]), _form([result]))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                # Shapes that never come again, as of sequences, must not fill the
                # memory.
                self._known.clear()
            known = self._formula(*args, **kwargs, out_val=result)
            self._known[key] = known
        return known


def flops_of(func: Any) -> Flops | None:
    """What counts an operation's overload; ``None`` for what torch does not count."""
    packet = func.overloadpacket
    formula = flop_registry.get(packet) or CUDNN_FLOPS.get(packet.__name__)
    if formula is None:
        return None
    return Flops(_without_dtype(formula) if _takes_dtype(func) else formula)


def _takes_dtype(func: Any) -> bool:
    return overload_of(schema_of(func)) in PRODUCTS_IN_DTYPE


def _without_dtype(formula: Callable[..., int]) -> Callable[..., int]:
    """Make *formula* leave out the dtype of a product, for which it has no argument."""

    def counted(*args: Any, **options: Any) -> int:
        return formula(*args[:-1], **options)

    return counted


def _form(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        value.shape
        if isinstance(value, torch.Tensor)
        else _form(value)
        if isinstance(value, (list, tuple))
        else value
        for value in values
    )


DENSE: Final = rules_by_op((*SYNC_RULES, *LAYOUT_RULES))
SPARSE: Final = rules_by_op(SPARSE_RULES)
COPY_OPS: Final = frozenset({"copy_", "copy", "_to_copy"})
ALLOCATIONS: Final = frozenset(
    "empty empty_strided empty_like new_empty new_empty_strided resize_ set_ "
    "detach detach_ lift_fresh alias is_same_size _local_scalar_dense".split()
)
"""Operations that launch nothing on a device; views launch nothing either."""

RESHAPING: Final = frozenset({"resize_", "resize_as_", "set_", "swap_"})
"""In-place operations that change the shape, besides those tagged as such."""

FLAGGED: Final = frozenset({"_conj", "_neg_view"})
"""Views that only flag what is to be computed; a GPU tensor cannot carry the flag."""

FUSED: Final = {
    **fused_attention.FUSED_ATTENTION,
    **fused_attention.FUSED_RMS_NORM,
    **EMBEDDING_KERNELS,
    **UNIQUE_KERNELS,
    **HOST_KERNELS,
    **FUSED_LAYERS,
    **FUSED_LOSSES,
    **CUDNN_KERNELS,
}

COMPOSITES: Final = {
    **{name.partition(".")[0]: kernel for name, kernel in COMPOSED_FOR_CUDA.items()},
    "scaled_dot_product_attention": attention,
    **RECURRENT_LAYERS,
}
"""Composite operations, or overloads of one, that CUDA decomposes differently from the CPU."""

HOST_OUTPUTS: Final = {
    "_pack_padded_sequence": (1,),
    "_scaled_dot_product_efficient_attention": (2, 3),
}
"""Outputs that stay on the host, by position: lengths, and the state of a generator."""

HOST_ARGUMENTS: Final = {"_pack_padded_sequence": 1}
"""Arguments that must be on the host and decide sizes, by position: lengths."""


TEMPORARIES: Final = {
    **RULES,
    **EMBEDDING_MEMORY,
    **SORT_MEMORY,
    **fused_attention.ATTENTION_MEMORY,
}

BIRTH_ORDER: Final = {
    **dict.fromkeys(EMBEDDING_KERNELS, BAG_ORDER),
    "_scaled_dot_product_flash_attention": (0, 1, 6, 7),
    "_thnn_fused_gru_cell": (1, 0),
    "_thnn_fused_lstm_cell": (2, 0, 1),
    "convolution_backward": (0, 1, 2),
    "native_batch_norm_backward": (1, 2, 0),
    "native_dropout": (1, 0),
}
"""Outputs in the order in which CUDA's kernel makes them, if it is another or has to be known."""


class OpPlan:
    """What is known of an operation before its arguments are known."""

    __slots__ = tuple(
        "birth_order composite decompose flags flops host_argument "
        "host_outputs in_place indexes is_absent is_of_program keeps_forward "
        "kernel launches mixes multiplies name op reshapes rules "
        "sized_by_values sources sparse_rules sparse_temporaries temporaries transfers views "
        "writes_only".split()
    )

    def __init__(self, func: Any) -> None:
        schema = schema_of(func)
        self.op: str = schema.name
        self.name = schema.name.partition("::")[2]
        self.rules: tuple[SyncRule, ...] = DENSE.get(self.name, ())
        self.sparse_rules: tuple[SyncRule, ...] = SPARSE.get(self.name, ())
        self.transfers = self.name in COPY_OPS
        self.indexes = self.name in INDEXING
        self.is_absent = self.name in ABSENT_ON_CUDA
        self.keeps_forward = (
            bool(self.rules)
            or self.transfers
            or self.name.removesuffix("_") in FORWARD_OPS
        )
        self.kernel = (
            FUSED.get(self.name)
            or PRODUCTS_IN_DTYPE.get(overload_of(schema))
            or _sizes_alone(self.op, SPARSE_HALVES.get(self.name))
            or kernel_of(func)
        )
        of_program = _of_program(func)
        self.is_of_program = of_program is not None
        self.flags = self.name in FLAGGED
        self.flops = flops_of(func)
        self.composite = _is_composite(func)
        self.decompose = (
            of_program
            or COMPOSITES.get(overload_of(schema))
            or COMPOSITES.get(self.name)
            or func.decompose
        )
        self.sources = _sources(schema)
        self.sized_by_values = torch.Tag.dynamic_output_shape in func.tags
        self.reshapes = (
            torch.Tag.inplace_view in func.tags
            or self.name in RESHAPING
            or any(argument.is_out for argument in schema.arguments)
        )
        self.views = _is_view(schema)
        self.writes_only = _returns_nothing_new(schema, self.sources)
        self.launches = not self.views and self.name not in ALLOCATIONS
        self.host_outputs = HOST_OUTPUTS.get(self.name, ())
        self.host_argument = HOST_ARGUMENTS.get(self.name)
        self.mixes = mixes_by_design(self.name)
        self.multiplies = self.name in MATRIX_PRODUCTS
        self.birth_order = BIRTH_ORDER.get(self.name, ())
        self.in_place = _in_place(func, self.name)
        self.temporaries = TEMPORARIES.get(self.name)
        self.sparse_temporaries = SPARSE_MEMORY.get(self.name)


PYTHON_KERNEL: Final = re.compile(
    r"^(CUDA|CompositeExplicitAutograd)\b.*:: \(none\) \[ boxed \]", re.MULTILINE
)
"""A line of the dispatcher's table: what C++ registers has types."""


def _of_program(func: Any) -> Callable[..., Any] | None:
    """Return a kernel in Python that runs on GPU tensors, as those of custom operations."""
    if func.namespace == "aten":
        return None
    table = torch._C._dispatch_dump(func.name())  # noqa: SLF001, there is no public one
    found = PYTHON_KERNEL.search(table)
    return found and partial(func._op_dk, DispatchKey.__members__[found[1]])  # noqa: SLF001


def _sizes_alone(op: str, kernel: Callable[..., Any] | None) -> Any:
    """Make *kernel* say that its results have no values."""
    if kernel is None:
        return None

    def sized(*args: Any, **options: Any) -> Any:
        WATCH.leave_unchecked(op, NO_CPU_KERNEL)
        return kernel(*args, **options)

    return sized


def _in_place(func: Any, name: str) -> Any:
    """Return the overload that writes, of operations that backward asks it of."""
    if name != SUM and name not in FRESH_TARGETS:
        return None
    packet = getattr(torch.ops.aten, f"{name}_")
    return getattr(packet, func._overloadname, None)  # noqa: SLF001


@cache
def plan_of(func: Any) -> OpPlan:
    """Return the plan of an operation's overload, made once per process."""
    return OpPlan(func)


def kernel_of(func: Any) -> Any:
    """Return what calls the operation without a frame of torch's in tracebacks."""
    return getattr(func, "_op", func)


def schema_of(func: Any) -> Any:
    """Return the schema of an operation's overload."""
    return func._schema  # noqa: SLF001, torch shows it nowhere else


def overload_of(schema: Any) -> str:
    """Return the name of an overload, such as ``mm.dtype``."""
    return f"{schema.name.partition('::')[2]}.{schema.overload_name}"


def _sources(schema: Any) -> tuple[tuple[int | None, str], ...] | None:
    """Return, for each result, the written argument that it is; ``None`` if none is."""
    places = {
        tuple(argument.alias_info.before_set): (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    found: list[tuple[int | None, str]] = []
    for returned in schema.returns:
        alias = returned.alias_info
        is_written = alias is not None and alias.is_write
        found.append(
            places[tuple(alias.before_set)] if is_written else (None, returned.name)
        )
    return tuple(found) if any(place is not None for place, _ in found) else None


def _returns_nothing_new(
    schema: Any, sources: tuple[tuple[int | None, str], ...] | None
) -> bool:
    """Whether the operation only writes to its arguments."""
    if sources is None:
        return not schema.returns and schema.is_mutable
    return all(place is not None for place, _ in sources)


def _is_view(schema: Any) -> bool:
    return any(
        returned.alias_info is not None and not returned.alias_info.is_write
        for returned in schema.returns
    )


def _is_composite(func: Any) -> bool:
    return (
        bool(
            torch._C._dispatch_has_kernel_for_dispatch_key(  # noqa: SLF001, decompose() asks it
                func.name(), "CompositeImplicitAutograd"
            )
        )
        and func.overloadpacket.__name__ not in fused_attention.ONE_KERNEL
    )
