"""From what steps did on the pretend GPU to what they would need on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final

from ..devices.memory_picture import Picture
from ..devices.pretend.insides import INSIDES
from ..devices.pretend.live_memory import LiveMemory
from ..devices.pretend.predicted_memory import StepMemory
from ..devices.pretend.program_memory import ProgramMemory
from ..model.forecast import Forecast
from .pictured import findings_of_picture
from .predicted import PEAKS
from .predicted import SEVERAL_STREAMS


UNTOUCHED: Final = "nothing was ever on the GPU: put model and data there"


def forecast_of_program(memory: ProgramMemory) -> Forecast:
    """Sum up the *memory* of a program, at its end."""
    return forecast_of(
        memory.memories(), memory.live, memory.picture, ended=memory.steps
    )


def forecast_of(
    steps: Sequence[StepMemory],
    live: LiveMemory,
    picture: Picture | None,
    *,
    ended: int,
) -> Forecast:
    """Sum up *steps*, at least one, of which so many have *ended*."""
    unjudged = [f"{op}: {reason}" for op, reason in live.unjudged]
    if not any(step.allocated_bytes for step in steps):
        unjudged.append(UNTOUCHED)
    return Forecast(
        allocated_bytes=max(step.allocated_bytes for step in steps),
        reserved_bytes=max(step.reserved_bytes for step in steps),
        steps=ended,
        findings=tuple(findings_of_picture(picture, PEAKS)) if picture else (),
        not_judged=tuple(unjudged),
        notes=tuple(_notes(live)),
    )


def _notes(live: LiveMemory) -> Iterator[str]:
    if INSIDES.switched:
        yield INSIDES.switched
    if live.several_streams:
        yield f"{SEVERAL_STREAMS}: a GPU may reserve more"
