"""Collective operations of one step, by kind and bytes, as the program asks for them.

They are counted where torch.distributed's operations pass the dispatcher. A profiler
names what a backend makes of them: gloo shows the reduce-scatter of FSDP as an
all-reduce. torch's own CommDebugMode hooks every module for the sake of its names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from typing import Final

from ..devices.base import Step
from ..devices.dispatch import Watching
from ..devices.dispatch import eager
from ..devices.memory_owners import tensors_in
from ..devices.process_time import now_s
from ..devices.process_time import patience_for
from ..model.ranks import Collective


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


def count_collectives(run: Callable[[], object]) -> tuple[Collective, ...]:
    """Let *run* make one step, compiled code as eager one, and count; most first."""
    counter = _Counter()
    with eager(), counter:
        run()
    kinds = sorted(counter.calls, key=lambda kind: (-counter.calls[kind], kind))
    return tuple(
        Collective(
            kind=kind, calls=counter.calls[kind], size_bytes=counter.size_bytes[kind]
        )
        for kind in kinds
    )


class _Counter(Watching):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}
        self.size_bytes: dict[str, int] = {}

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
        self.calls[kind] = self.calls.get(kind, 0) + 1
        self.size_bytes[kind] = self.size_bytes.get(kind, 0) + size


# Collectives that are over when they return, so that a step's memory is repeatable.
#
# A thread of gloo keeps a collective, and its tensors, until a moment after it is over.
# What the program frees meanwhile stays alive for as long as the thread takes, as was
# seen in one step of thirty. Here the program waits for each collective, and then for its
# thread to sleep, before it goes on: then only the program owns the tensors.

THREAD: Final = "pt_gloo_runloop"
"""Name that ProcessGroupGloo gives the threads which run its collectives."""

SLEEPS: Final = "S"

PEER_NEEDED: Final = ("send", "recv")
"""Beginnings of names of operations that may wait for what the program does later."""

WAITED: Final = "wait_tensor"
"""The end of a functional collective; until then torch keeps its tensors as well."""

FINISHED_PAUSE_SECONDS: Final = 0.0002

MOST_COLLECTIVE_SECONDS: Final = 1.0
"""Seconds after which a thread that does not sleep is no longer waited for."""

TASKS: Final = Path("/proc/self/task")


def settled(step: Step) -> Step:
    """Return *step* with each of its collectives over before it goes on."""

    def run(*arguments: object) -> object:
        with _Settled():
            return step(*arguments)

    return run


class _Settled(Watching):
    def saw(self, op: Any, args: Sequence[Any], result: Any) -> None:  # noqa: ARG002  called with both
        name = op.name().partition("::")[2].partition(".")[0]
        # A send or a receive is left alone: to wait for it here could wait for a peer
        # that needs this rank's next operation first.
        if op.namespace == "c10d" and not name.startswith(PEER_NEEDED):
            for work in _works_in(result):
                work.wait()
            wait_for_threads()
        elif op.namespace == "_c10d_functional" and name == WAITED:
            wait_for_threads()


def _works_in(result: Any) -> Iterator[Any]:
    """Give the handles of what was started among the results of an operation."""
    for value in result if isinstance(result, (tuple, list)) else (result,):
        if hasattr(value, "wait"):
            yield value


def wait_for_threads() -> None:
    """Wait until gloo's threads have released collectives that are over."""
    # gloo tells nobody when it drops its reference. A thread that sleeps waits for its
    # next collective, so its state is the only sign from outside.
    me = os.getpid()
    patience = patience_for(MOST_COLLECTIVE_SECONDS, me)
    while any(state != SLEEPS for state in thread_states()):
        if patience.over(now_s(), (me,)):
            return
        time.sleep(FINISHED_PAUSE_SECONDS)


def thread_states(tasks: Path = TASKS) -> Iterator[str]:
    """Give the states of gloo's threads, as proc(5) has them; none where it is not."""
    with suppress(OSError):
        for task in tasks.iterdir():
            # A thread may end between the listing and the reading.
            with suppress(OSError):
                name, _, rest = (task / "stat").read_text().rpartition(") ")
                if name.endswith(f"({THREAD}"):
                    yield rest[:1]
