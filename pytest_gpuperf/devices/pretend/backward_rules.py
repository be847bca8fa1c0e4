"""Backward formulas that read values on CUDA but not from a ghost.

torch takes another path for tensor subclasses in these, so the table speaks for the
path that a CUDA tensor takes. Source of all: FunctionsManual.cpp of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from typing import Final

from ..autograd import current_node
from .recorder import WATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardRule:
    """The node waits once in ``op`` if ``when`` is true of it.

    It does so at its first operation, or at the first that is named ``at``.
    """

    op: str
    reason: str
    when: Callable[[Any], bool]
    at: str = ""


def _reduces_elements(node: Any) -> bool:
    return bool(node._saved_self.dim() > 0)  # noqa: SLF001, autograd's own name


def _has_several(node: Any) -> bool:
    return bool(node._saved_self.numel() > 1)  # noqa: SLF001


def _value_needs_grad(node: Any) -> bool:
    # The second edge is that of the value; it leads nowhere if the value needs no
    # gradient.
    edges = node.next_functions
    return len(edges) > 1 and edges[1][0] is not None


BACKWARD_RULES: Final[Mapping[str, BackwardRule]] = {
    "ProdBackward0": BackwardRule(
        op="aten::nonzero",
        reason="the backward of prod() looks for zeros in its input",
        when=_reduces_elements,
    ),
    "ProdBackward1": BackwardRule(
        op="aten::_local_scalar_dense",
        reason="the backward of prod(dim) reads the number of zeros in its input",
        when=_reduces_elements,
    ),
    "CumprodBackward0": BackwardRule(
        op="aten::_local_scalar_dense",
        reason="the backward of cumprod() reads whether its input has zeros",
        when=_has_several,
    ),
    "MaskedFillBackward1": BackwardRule(
        op="aten::masked_select",
        reason="the gradient of masked_fill's value is picked by a mask, whose count is read",
        when=_value_needs_grad,
    ),
    "LinalgEigBackward0": BackwardRule(
        op="aten::allclose",
        reason="the backward of eig() checks the gradient of the eigenvectors",
        when=lambda _: True,
        # Without such a gradient it takes no diagonal.
        at="diagonal",
    ),
}

FORWARD_OPS: Final = frozenset(
    {"prod", "cumprod", "masked_fill", "index", "masked_select", "repeat_interleave"}
)
"""Operations with a backward that may wait, so their line is worth keeping."""


class BackwardWatch:
    """Sees each node of a backward pass once, by the operations it dispatches."""

    def __init__(self) -> None:
        self._seen: int | None = None

    def look(self, op: str) -> None:
        """Record the waits of the node at work, which runs *op*, once a node."""
        node = current_node()
        if node is None:
            self._seen = None
            return
        # A node dispatches several operations; its number tells it from the next node
        # of the same name.
        number = node._sequence_nr()  # noqa: SLF001, its only name
        if number == self._seen:
            return
        rule = BACKWARD_RULES.get(node.name())
        if rule is not None and rule.at not in {"", op}:
            return
        self._seen = number
        if rule is not None and rule.when(node):
            WATCH.sync(rule.op, rule.reason)
