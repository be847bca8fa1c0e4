"""The simulated GPU as a device to measure on: it counts, and it has no clock."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ...model.environment import SIMULATED_GIB, SIMULATED_GPU, DeviceKind, Environment
from ...model.finding import Finding
from ...model.metrics import METRICS, RANKED, MetricKind
from ..allow_sync import Allowance, heard_by
from ..audit_record import StepAudit, Totals
from ..base import EmulatingDevice, Step
from ..own_code import is_own
from ..process_time import OwnClock
from . import simulated_gpu
from .allocator import settings_against_reserved
from .specification import memory_of


if TYPE_CHECKING:
    from .gpu import SimulatedGpu
    from .memory_watch import MemoryAudit

SIMULATED_HAS_NO_CLOCK: Final = "the simulated GPU has no clock"
RUNS_ONE_RANK: Final = "the simulated GPU runs one rank"

SCRIPTED: Final = frozenset(
    {"torch.jit.script", "torch.jit.trace", "torch.cuda.make_graphed_callables"}
)
"""What is recorded when a step's code is made, not when it runs."""


class AllowedSyncs:
    """Certain syncs that blocks allowed, each with the block's reason."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._taken: Counter[tuple[Finding, str]] = Counter()
        self._taken_inside: Counter[Finding] = Counter()

    @contextmanager
    def block(self, allowance: Allowance) -> Iterator[None]:
        """Allow syncs inside the context; those in nested blocks belong to them."""
        # The counter is swapped for the time of the block: what nested blocks take is
        # subtracted here once, and then handed on to the block around this one.
        outer, self._taken_inside = self._taken_inside, Counter()
        with simulated_gpu(self._root) as gpu:
            try:
                yield
            finally:
                self._take(allowance, gpu.end_step())
                outer.update(self._taken_inside)
                self._taken_inside = outer

    def _take(self, allowance: Allowance, audit: StepAudit) -> None:
        left = allowance.covers(audit.totals.syncs)
        for finding in audit.findings:
            if finding.is_certain:
                cause = _cause(finding)
                taken = min(left, finding.per_step - self._taken_inside[cause])
                self._taken[cause, allowance.reason] += taken
                self._taken_inside[cause] += taken
                left -= taken

    def apart(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield *findings*, and apart from them what blocks allow of each."""
        for finding in findings:
            left = finding.per_step
            for (cause, reason), count in self._taken.items():
                taken = min(left, count) if cause == _cause(finding) else 0
                if taken:
                    yield replace(finding, per_step=taken).allowing(reason)
                    self._taken[cause, reason] -= taken
                    left -= taken
            if left:
                yield replace(finding, per_step=left)


def _cause(finding: Finding) -> Finding:
    """Return what two recorders agree on about a sync: all but the forward line."""
    return replace(finding, per_step=0, forward=None)


class SimulatedDevice(EmulatingDevice):
    """A CUDA device of *gib* that is not there; findings name lines below *root*.

    From ``enter`` to ``leave`` this process has it: torch says so to everybody.
    """

    kind: Final = DeviceKind.SIMULATED
    torch_device: Final = "cuda"
    unmeasurable: Final[Mapping[str, str]] = {
        metric.name: SIMULATED_HAS_NO_CLOCK
        if metric.kind is MetricKind.NOISY
        else RUNS_ONE_RANK
        for metric in METRICS.values()
        if metric.kind is MetricKind.NOISY or metric in RANKED
    }

    def __init__(self, root: str, gib: float = SIMULATED_GIB) -> None:
        self.root = root
        self._gib = gib
        self._pretence = ExitStack()
        self._gpu: SimulatedGpu | None = None
        self.between: Sequence[Totals] = ()
        self._made: list[Finding] = []
        self._as_eager: list[Finding] = []

    def environment(self) -> Environment:
        """One hardware for every machine; the versions that were read on it."""
        from ..preflight import software

        return Environment(hardware=SIMULATED_GPU, software=software())

    def enter(self) -> None:
        """Import torch and simulated, until ``leave`` or the end of the process."""
        # The size first: everything after it may ask for the properties.
        self._pretence.enter_context(memory_of(self._gib))
        self._gpu = self._pretence.enter_context(simulated_gpu(self.root))

    def leave(self) -> None:
        """Leave torch as it was."""
        self._gpu = None
        self._pretence.close()

    def preflight(self) -> None:
        """Nothing can be wrong: no number depends on the machine."""

    def now_ns(self) -> int:
        """Read the clock of this process, for caps and for nothing else."""
        return self._own_clock.now_ns()

    @cached_property
    def _own_clock(self) -> OwnClock:
        return OwnClock()

    def audit(
        self, step: Step, arguments: Sequence[object], *, locate_work: bool = False
    ) -> tuple[StepAudit, object]:
        """Run one step: what it would do on a GPU, and where if asked for; its result."""
        assert self._gpu is not None  # noqa: S101 - it was entered before collection
        # What was recorded since the last step, such as a script made in ``setup``, is
        # kept apart from this step.
        before = self._gpu.end_step(locate_work=locate_work)
        self.between = (before.totals,)
        self._remember(before)
        allowed = AllowedSyncs(self.root)
        log = self._gpu.recorder.log
        modules = log.following_modules() if locate_work else nullcontext()
        with heard_by(allowed.block), modules:
            result = step(*arguments)
        audit = self._gpu.end_step()
        self._remember(audit)
        findings = tuple(allowed.apart(audit.findings))
        return replace(audit, findings=findings), result

    def watching_memory(self) -> AbstractContextManager[MemoryAudit]:
        """Watch the memory of the steps run inside, on a GPU of limited size.

        The size is not limited under allocator settings that the simulation lacks.
        """
        from .memory_watch import watching_memory

        return watching_memory(limited=settings_against_reserved(os.environ) is None)

    @property
    def gave_up_values(self) -> str | None:
        """Why GPU tensors have no values any more, if they lost them."""
        from .tensor_values import BACKING

        return BACKING.switched

    @property
    def made_unchecked(self) -> Sequence[Finding]:
        """Scripts that the project has made so far; those of libraries do not count."""
        return self._made

    @property
    def as_eager(self) -> Sequence[Finding]:
        """What has been judged as eager code so far, in this process."""
        return self._as_eager

    def _remember(self, audit: StepAudit) -> None:
        self._as_eager += audit.as_eager
        self._made += [
            made
            for made in audit.not_checked
            if made.op in SCRIPTED and self._is_of_project(made)
        ]

    def _is_of_project(self, made: Finding) -> bool:
        at = made.inner
        return at is None or is_own(at.file, self.root)
