"""Collective operations of one step, by kind and bytes, as the program asks for them.

They are counted where torch.distributed's operations pass the dispatcher. A profiler
names what a backend makes of them: gloo shows the reduce-scatter of FSDP as an
all-reduce. torch's own CommDebugMode hooks every module for the sake of its names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..devices.memory_owners import tensors_in
from ..devices.operations import Watching, eager
from ..devices.source_lines import outwards, own_and_inner
from ..model.finding import Finding, FindingKind, Location
from ..model.measurement import Collective
from ..model.metrics import COLLECTIVE_BYTES, COLLECTIVES


NAMESPACES: Final = frozenset({"c10d", "_c10d_functional"})

COLLECTIVE_NAMES: Final[Mapping[str, str]] = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "monitored_barrier": "barrier",
    "recv_any_source": "recv",
}
"""Names of operations that have other names in ``torch.distributed``."""

NOT_COLLECTIVES: Final = frozenset({"wait_tensor", "_wrap_tensor_autograd"})
"""Operations of these namespaces that send nothing."""

BARRIER: Final = "barrier"


def count_collectives(
    run: Callable[[], object],
) -> tuple[tuple[Collective, ...], tuple[Finding, ...]]:
    """Let *run* make one step, compiled code as eager one, and count by kind and by line.

    Most come first.
    """
    counter = _Counter()
    with eager(), counter:
        run()
    kinds = {kind for kind, *_ in counter.seen}
    found = [
        Collective(
            kind=kind,
            calls=sum(line.per_step for line in lines),
            size_bytes=sum(line.moved_bytes for line in lines),
        )
        for kind in kinds
        for lines in [[line for line in counter.seen.values() if line.op == kind]]
    ]
    return (
        tuple(sorted(found, key=lambda each: (-each.calls, each.kind))),
        tuple(sorted(counter.seen.values(), key=lambda line: -line.per_step)),
    )


class _Counter(Watching):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[str, Location | None, Location | None], Finding] = {}

    def saw(self, op: Any, args: Sequence[Any], result: Any) -> None:
        if op.namespace in NAMESPACES:
            self._count(op, (*args, result))

    def _count(self, op: Any, values: Sequence[Any]) -> None:
        name = op.name().partition("::")[2].partition(".")[0].rstrip("_")
        kind = COLLECTIVE_NAMES.get(name, name)
        if name in NOT_COLLECTIVES:
            return
        # The largest side counts: an all-gather has small arguments and a large result,
        # a reduce-scatter the reverse.
        sizes = (sum(t.nbytes for t in tensors_in((value,))) for value in values)
        size = 0 if kind == BARRIER else max(sizes)
        stack = [*outwards(sys._getframe(1))]  # noqa: SLF001, inspect.stack() reads sources
        location, innermost = own_and_inner(str(Path.cwd()), stack)
        key = (kind, location, innermost)
        seen = self.seen.get(key) or Finding(
            kind=FindingKind.COLLECTIVE,
            op=kind,
            location=location,
            innermost=innermost,
            metrics=(COLLECTIVES.name, COLLECTIVE_BYTES.name),
        )
        self.seen[key] = replace(
            seen, per_step=seen.per_step + 1, moved_bytes=seen.moved_bytes + size
        )
