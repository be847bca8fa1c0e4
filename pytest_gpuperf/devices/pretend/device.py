"""The pretend GPU as a device to measure on: it counts, and it has no clock."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Final

from ...model.environment import PRETEND_GIB
from ...model.environment import DeviceKind
from ...model.environment import Environment
from ...model.environment import Hardware
from ...model.memory_metric import PREDICTED
from ...model.metric import AUDITED
from ...model.metric import METRICS
from ...model.metric import SYNCS
from ...model.metric import Kind
from ...model.metric import Metric
from ...model.metric import limited_by
from ...model.step_metric import COMPILED
from ...model.step_metric import LAUNCHED
from ..allowances import heard_by
from ..protocol import Step
from . import pretend_gpu
from .allocator_settings import settings_against_reserved
from .allowed import AllowedWaits
from .allowed import WaitKey
from .record import StepAudit
from .record import Unjudged
from .specification import memory_of


if TYPE_CHECKING:
    from .gpu import PretendGpu
    from .memory_audit import MemoryAudit


NO_CLOCK: Final = "the pretend device has no clock"
NO_MEMORY: Final = "the pretend device predicts memory and measures none"

SCRIPTED: Final = frozenset(
    {"torch.jit.script", "torch.jit.trace", "torch.cuda.make_graphed_callables"}
)
"""What is recorded where a step's code is made, and not where it runs."""


def _is_predicted(metric: Metric) -> bool:
    """Whether *metric*, or another in its place, is predicted here."""
    return any(metric in {m, *limited_by(m.budget or "")} for m in PREDICTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedStep:
    """What one step did, what of it was allowed, and what the step returned."""

    audit: StepAudit
    allowed: Mapping[tuple[WaitKey, str], int]
    result: object


class PretendDevice:
    """A CUDA device of *gib* that is not there; findings name lines below *root*.

    From ``enter`` to ``leave`` this process has it: torch says so to everybody.
    """

    kind: Final = DeviceKind.PRETEND
    torch_device: Final = "cuda"
    unmeasurable: Final[Mapping[str, str]] = {
        metric.name: NO_CLOCK if metric.kind is Kind.NOISY else NO_MEMORY
        for metric in METRICS.values()
        if metric not in {SYNCS, *AUDITED, *COMPILED, *LAUNCHED}
        and not _is_predicted(metric)
    }

    def __init__(self, root: str, gib: float = PRETEND_GIB) -> None:
        self.root = root
        self._gib = gib
        self._pretence = ExitStack()
        self._gpu: PretendGpu | None = None
        self._made: list[Unjudged] = []
        self._as_eager: list[Unjudged] = []

    def environment(self) -> Environment:
        """One hardware for every machine; the versions that were read on it."""
        from ..software import software

        return Environment(
            hardware=Hardware(kind=self.kind, name="CUDA"), software=software()
        )

    def enter(self) -> None:
        """Import torch and pretend, until ``leave`` or the end of the process."""
        self._pretence.enter_context(memory_of(self._gib))
        self._gpu = self._pretence.enter_context(pretend_gpu(self.root))

    def leave(self) -> None:
        """Leave torch as it was."""
        self._gpu = None
        self._pretence.close()

    def now_ns(self) -> int:
        """Read the monotonic host clock, for caps and for nothing else."""
        return time.perf_counter_ns()

    def audit(self, step: Step, arguments: Sequence[object]) -> AuditedStep:
        """Run one step and return what it would do on a GPU."""
        assert self._gpu is not None  # noqa: S101 - it was entered before collection
        self._remember(self._gpu.end_step())
        allowed = AllowedWaits(self.root)
        with heard_by(allowed.block):
            result = step(*arguments)
        audit = self._gpu.end_step()
        self._remember(audit)
        return AuditedStep(audit=audit, allowed=Counter(allowed.taken), result=result)

    def watching_memory(self) -> AbstractContextManager[MemoryAudit]:
        """Watch the memory of the steps run inside, of which there is so much.

        There is no end of it under settings that take it from the GPU in other pieces.
        """
        from .memory_audit import watching_memory

        return watching_memory(limited=settings_against_reserved(os.environ) is None)

    @property
    def gave_up_values(self) -> str | None:
        """Why ghosts hold no values any more, if they do not."""
        from .insides import INSIDES

        return INSIDES.switched

    @property
    def made_unjudged(self) -> Sequence[Unjudged]:
        """Scripts that the project itself has made so far; libraries may make theirs."""
        return self._made

    @property
    def as_eager(self) -> Sequence[Unjudged]:
        """What has been judged as eager code so far, in this process."""
        return self._as_eager

    def _remember(self, audit: StepAudit) -> None:
        self._as_eager += audit.as_eager
        self._made += [
            made
            for made in audit.not_judged
            if made.op in SCRIPTED and made.site.location == made.site.innermost
        ]
