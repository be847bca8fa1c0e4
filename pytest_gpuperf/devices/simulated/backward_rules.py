"""Backward formulas that read values on CUDA but not from a GPU tensor.

torch takes another path for tensor subclasses in these, so the table speaks for the
path that a CUDA tensor takes. Source of all: FunctionsManual.cpp of torch 2.13.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch.autograd import graph

from ..memory_owners import MADE_AS, current_node, number_of
from .memory import SIMULATED_MEMORY
from .patches import Patch
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

FORWARD_OPS: Final = frozenset({"prod", "cumprod", "masked_fill", "masked_scatter"})
"""Operations with a backward that may wait though they do not."""


class BackwardWatch:
    """Sees each node of a backward pass once, by the operations it dispatches."""

    def __init__(self) -> None:
        self._seen: int | None = None

    def look(self, op: str) -> None:
        """Record the syncs of the node at work, which runs *op*, once a node."""
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


# In which order autograd's engine runs the nodes that a backward has made.

STEALS: Final = "torch::autograd::AccumulateGrad"
"""The node that makes a gradient the parameter's own; it copies what others refer to."""


class DeviceThread:
    """Runs a backward and numbers the nodes that it makes as CUDA's thread for it does.

    The engine prefers those made last, and each thread counts for itself. Here the thread
    that runs the forward makes all of them.
    """

    def __init__(self) -> None:
        self._made = 0

    def run(self, outputs: Sequence[Any], *args: Any, **options: Any) -> Any:
        """``_engine_run_backward``."""
        __tracebackhide__ = True
        before, first = self._made, _next_number()
        found = _run_backward(outputs, *args, **options)
        made = range(first, _next_number())
        self._made = before + len(made)
        if made:
            with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
                _renumber(made, 2 * before, outputs if found is None else found)
        return found


_run_backward = graph._engine_run_backward  # noqa: SLF001
_next_number = torch._C._autograd._get_sequence_nr  # noqa: SLF001


def _renumber(made: range, start: int, tensors: Iterable[Any]) -> None:
    """Number from *start* on the nodes with numbers of *made* behind *tensors*.

    They may be the outputs of a backward, which has left gradients in their leaves.
    The numbers of the forward's thread are too high here by half of *start*.
    """
    for node in _nodes_behind(tensors):
        if node.name() == STEALS and node.variable.grad is not None:
            tensors = [*tensors, node.variable.grad]
    for node in _nodes_behind(tensors):
        number = number_of(node)
        if number in made:
            node.metadata[MADE_AS] = number
            node._set_sequence_nr(start + made.index(number))  # noqa: SLF001


def _nodes_behind(tensors: Iterable[Any]) -> Iterator[Any]:
    waiting: list[Any] = [getattr(tensor, "grad_fn", None) for tensor in tensors]
    seen: set[Any] = {None}
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting.extend(after for after, _ in node.next_functions)


def numbering_patches() -> Iterator[Patch]:
    """The one function."""
    yield Patch(torch.autograd, "_engine_run_backward", DeviceThread().run)


# What backward writes in place on CUDA, and out of place for tensors of a subclass.
#
# torch asks ``isTensorSubclassLike`` in all these places, which a GPU tensor is.

ENGINE: Final = graph._engine_run_backward.__code__  # noqa: SLF001, its frame calls C++

SELECTED: Final = frozenset(
    "KthvalueBackward0 MaxBackward0 MedianBackward1 MinBackward0 "
    "ModeBackward0 NanmedianBackward1 SortBackward0 SortBackward1 "
    "TopkBackward0".split()
)
"""Nodes with gradients that go to where the values came from."""

LOGITS: Final = frozenset({"BinaryCrossEntropyWithLogitsBackward0"})

FRESH_TARGETS: Final[Mapping[str, frozenset[str]]] = {
    "index_add": frozenset({"IndexSelectBackward0"}),
    "index_put": frozenset({"IndexBackward0"}),
    "mul": LOGITS,
    "scatter": SELECTED,
    "scatter_add": frozenset({"CummaxBackward0", "CumminBackward0", "GatherBackward0"}),
    "sub": LOGITS,
}
"""Nodes that write to what they have made, often zeros, by the operation that does."""

SUMLESS: Final = frozenset({"BmmBackward0", "MmBackward0", "MulBackward0"})
"""Nodes with formulas that add up nothing: what adds two gradients of them is the engine."""

SUM: Final = "add"
"""What adds up the gradients of a tensor that was used more than once."""


def is_stolen(tensor: Any) -> bool:
    """Whether *tensor*, a GPU tensor that is to be copied, is a gradient that CUDA's engine keeps.

    The GPU tensors around the parts of a sparse one refer to them as well, so it is copied here.
    It is asked by the function that torch's dispatcher has called.
    """
    node = current_node()
    return bool(
        node is not None
        and tensor.layout is torch.sparse_coo
        and node.name() == STEALS
        and not torch.is_grad_enabled()
        and sys._getframe(3).f_code is ENGINE  # noqa: SLF001, as in ``is_in_place``
        # Of a sum's gradient they are one element each.
        and tensor.inside._values().is_contiguous()  # noqa: SLF001
        and tensor.inside._indices().is_contiguous()  # noqa: SLF001
    )


class Owners(NamedTuple):
    """How often a GPU tensor is referred to by Python, by C++, and its storage by both."""

    python: int
    core: int
    storage: int


def is_in_place(func: Any, name: str, args: Sequence[Any]) -> bool:
    """Whether CUDA's backward would write the result of *func* into its first argument.

    It is asked by the function that torch's dispatcher has called.
    """
    node = current_node()
    if node is None or torch.is_grad_enabled():
        return False
    # A formula in Python, or a hook, may go on using what it adds.
    if sys._getframe(3).f_code is not ENGINE:  # noqa: SLF001, through ``execute`` and dispatch
        return False
    live = SIMULATED_MEMORY.live
    if name != SUM:
        is_fresh = node.name() in FRESH_TARGETS[name]
        if not is_fresh or node.name() not in LOGITS:
            return is_fresh
        # Its first product is one of weights that somebody else has.
        return live is not None and live.is_made_by(node, args[0].inside)
    # What the node itself has made, its formula adds up, and not the engine.
    return (
        func is _sum
        and live is not None
        and (node.name() in SUMLESS or live.is_from_before(node, args[0].inside))
        and _is_alone(args)
    )


def _is_alone(args: Sequence[Any]) -> bool:
    """``can_accumulate_inplace`` of input_buffer.cpp."""
    first, second = args[:2]
    return bool(
        first.shape == second.shape
        and first.inside.dtype is second.inside.dtype
        and first.inside.layout is second.inside.layout is torch.strided
        # Torch's name for "not dense": a gradient that was expanded has no room of its own.
        and not torch._debug_has_internal_overlap(first.inside)  # noqa: SLF001
        and ENGINE_ALONE.owns(_owners(first))
    )


_sum = torch.ops.aten.add.Tensor


class EngineAlone:
    """Knows how often a gradient is referred to that only autograd's engine has.

    The numbers are those of this version of torch and of Python, so they are counted
    once, on a sum that nobody else can have a part of.
    """

    def __init__(self) -> None:
        self._counted: list[Owners] = []

    def count(self) -> None:
        """Count, if that has not been done in this process."""
        if self._counted:
            return
        with torch.enable_grad():
            leaf = torch.ones((), device="cuda", requires_grad=True)
            inner = leaf * 2
            (inner.sin() + inner.cos()).backward()

    def owns(self, owners: Owners) -> bool:
        """Whether *owners* are those of a gradient that only the engine has."""
        if not self._counted:
            self._counted.append(owners)
        return owners == self._counted[0]


ENGINE_ALONE: Final = EngineAlone()

_use_count: Final = torch.Tensor._use_count  # noqa: SLF001
"""The core's count: on the simulated GPU torch's own callers get another answer."""


def _owners(gpu_tensor: Any) -> Owners:
    storage = gpu_tensor.inside.untyped_storage()
    return Owners(
        python=sys.getrefcount(gpu_tensor),
        core=_use_count(gpu_tensor),
        storage=torch._C._storage_Use_Count(storage._cdata),  # noqa: SLF001
    )
