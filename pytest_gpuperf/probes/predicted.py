"""Predicts the memory of a step on a GPU that is not there, and says what it is for."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Final

from ..devices.pretend.allocator_settings import settings_against_allocated
from ..devices.pretend.allocator_settings import settings_against_reserved
from ..model.finding import Finding
from ..model.memory_metric import PREDICTED
from ..model.memory_metric import PREDICTED_ALLOCATED
from ..model.memory_metric import PREDICTED_GROWTH
from ..model.memory_metric import PREDICTED_REQUESTED
from ..model.memory_metric import PREDICTED_RESERVED
from ..model.memory_metric import PREDICTED_RETRIES
from .pictured import findings_of_picture
from .subject import Subject


if TYPE_CHECKING:
    from ..devices.pretend.memory_audit import MemoryAudit
    from ..devices.pretend.predicted_memory import StepMemory


STEPS: Final = 2
"""Those behind the first, which takes what is kept: the last is explained as well."""

SEVERAL_STREAMS: Final = (
    "memory is taken on several streams, each of which has cached blocks of its own, and "
    "the simulated allocator knows one stream"
)

RETRIED: Final = (
    "the GPU would run out of memory in a step, and its allocator flush its cache"
)

PEAKS: Final = tuple(m.name for m in PREDICTED if m.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Bytes by metric name, why some have none, and what is held at the peak."""

    exact: Mapping[str, int] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()


def predict_memory(memory: MemoryAudit, subject: Subject, root: str) -> Prediction:
    """Run ``STEPS`` steps of *subject*; *memory* has watched the first one before.

    Lines below the directory *root* are the project's. Raises whatever the step raises.
    """

    def run() -> Callable[[], object]:
        arguments = subject.arguments()
        return lambda: subject.step(*arguments)

    for _ in range(STEPS - 1):
        memory.step(run())
    picture = memory.explained_step(run(), root)
    missing = [f"{op}: {reason}" for op, reason in memory.live.unjudged]
    if missing:
        reason = f"only a GPU can judge {'; '.join(missing)}"
        return Prediction(unmeasured=dict.fromkeys(_names(), reason))
    unmeasured = _unpredictable(several_streams=memory.live.several_streams)
    exact = {
        name: value
        for name, value in _numbers(memory.memories()[1:]).items()
        if name not in unmeasured
    }
    findings = tuple(findings_of_picture(picture, PEAKS)) if picture is not None else ()
    return Prediction(
        exact=exact,
        unmeasured=unmeasured,
        findings=findings,
        remarks=(RETRIED,) if exact.get(PREDICTED_RETRIES.name) else (),
    )


def _names() -> tuple[str, ...]:
    return tuple(metric.name for metric in PREDICTED)


def _numbers(steps: Sequence[StepMemory]) -> Mapping[str, int]:
    return {
        PREDICTED_ALLOCATED.name: max(step.allocated_bytes for step in steps),
        PREDICTED_REQUESTED.name: max(step.requested_bytes for step in steps),
        PREDICTED_RESERVED.name: max(step.reserved_bytes for step in steps),
        PREDICTED_GROWTH.name: max(0, steps[-1].end_bytes - steps[0].end_bytes),
        PREDICTED_RETRIES.name: max(step.retries for step in steps),
    }


def _unpredictable(*, several_streams: bool) -> Mapping[str, str]:
    """Why, by metric, streams or the allocator's settings leave no number."""
    reserved = settings_against_reserved(os.environ)
    if reserved is None and several_streams:
        reserved = SEVERAL_STREAMS
    allocated = settings_against_allocated(os.environ)
    names = (PREDICTED_RESERVED.name, PREDICTED_RETRIES.name)
    found = {} if reserved is None else dict.fromkeys(names, reserved)
    return found if allocated is None else dict.fromkeys(_names(), allocated)
