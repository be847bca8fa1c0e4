"""What is known of an operation before its arguments are."""

from __future__ import annotations

from functools import cache
from typing import Any
from typing import Final

import torch

from . import fused_attention
from . import rms_norm
from .attention import attention
from .backward_rules import FORWARD_OPS
from .flops import flops_of
from .live_memory import MATRIX_PRODUCTS
from .mixing import mixes_by_design
from .rule import Rule
from .rules import INDEXING
from .rules import RULES
from .rules import rules_by_op
from .sparse_rules import LAYOUT_RULES
from .sparse_rules import SPARSE_RULES


DENSE: Final = rules_by_op((*RULES, *LAYOUT_RULES))
SPARSE: Final = rules_by_op(SPARSE_RULES)
COPIES: Final = frozenset({"copy_", "copy", "_to_copy"})
ALLOCATIONS: Final = frozenset(
    {
        "empty",
        "empty_strided",
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "set_",
        "detach",
        "detach_",
        "lift_fresh",
        "alias",
        "is_same_size",
        "_local_scalar_dense",
    }
)
"""Operations that launch nothing on a device; views launch nothing either."""

RESHAPING: Final = frozenset({"resize_", "resize_as_", "set_", "swap_"})
"""In-place operations that change the shape, beside those tagged as such."""

FLAGGED: Final = frozenset({"_conj", "_neg_view"})
"""Views that only flag what is to be computed; a ghost cannot carry the flag."""

FUSED: Final = {**fused_attention.FUSED, **rms_norm.FUSED}

COMPOSITES: Final = {"scaled_dot_product_attention": attention}
"""Operations made of others, which CUDA makes of others than torch's core would here."""

HOST_OUTPUTS: Final = {"_pack_padded_sequence": 1}
"""Outputs that stay on the host, by position."""


class Plan:
    """What is known of an operation before its arguments are."""

    __slots__ = (
        "composite",
        "decompose",
        "flags",
        "flops",
        "host_output",
        "indexes",
        "keeps_forward",
        "kernel",
        "launches",
        "mixes",
        "multiplies",
        "name",
        "op",
        "reshapes",
        "rules",
        "sources",
        "sparse_rules",
        "transfers",
        "views",
        "writes_only",
    )

    def __init__(self, func: Any) -> None:
        schema = schema_of(func)
        self.op: str = schema.name
        self.name = schema.name.partition("::")[2]
        self.rules: tuple[Rule, ...] = DENSE.get(self.name, ())
        self.sparse_rules: tuple[Rule, ...] = SPARSE.get(self.name, ())
        self.transfers = self.name in COPIES
        self.indexes = self.name in INDEXING
        self.keeps_forward = self.name in FORWARD_OPS
        self.kernel = FUSED.get(self.name) or kernel_of(func)
        self.flags = self.name in FLAGGED
        self.flops = flops_of(func)
        self.composite = _is_composite(func)
        self.decompose = COMPOSITES.get(self.name, func.decompose)
        self.sources = _sources(schema)
        self.reshapes = (
            torch.Tag.inplace_view in func.tags
            or self.name in RESHAPING
            or any(argument.is_out for argument in schema.arguments)
        )
        self.views = _is_view(schema)
        self.writes_only = _returns_nothing_new(self.sources)
        self.launches = not self.views and self.name not in ALLOCATIONS
        self.host_output = HOST_OUTPUTS.get(self.name)
        self.mixes = mixes_by_design(self.name)
        self.multiplies = self.name in MATRIX_PRODUCTS


@cache
def plan_of(func: Any) -> Plan:
    """Return the plan of an operation's overload, made once a process."""
    return Plan(func)


def kernel_of(func: Any) -> Any:
    """Return what calls the operation without a frame of torch's in tracebacks."""
    return getattr(func, "_op", func)


def schema_of(func: Any) -> Any:
    """Return the schema of an operation's overload."""
    return func._schema  # noqa: SLF001, torch shows it nowhere else


def _sources(schema: Any) -> tuple[tuple[int | None, str], ...] | None:
    """For each return the argument it is, if it is one written to; ``None`` if none is."""
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


def _returns_nothing_new(sources: tuple[tuple[int | None, str], ...] | None) -> bool:
    """Whether the operation only writes to its arguments."""
    return sources is not None and all(place is not None for place, _ in sources)


def _is_view(schema: Any) -> bool:
    return any(
        returned.alias_info is not None and not returned.alias_info.is_write
        for returned in schema.returns
    )


def _is_composite(func: Any) -> bool:
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(  # noqa: SLF001, decompose() asks it
            func.name(), "CompositeImplicitAutograd"
        )
    )
