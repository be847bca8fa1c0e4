"""From what a program did on the pretend GPU to what it would need on a real one."""

from __future__ import annotations

from ..devices.pretend.insides import INSIDES
from ..devices.pretend.program_memory import ProgramMemory
from ..model.forecast import Forecast
from .predicted import findings_of_picture


def forecast_of(memory: ProgramMemory) -> Forecast:
    """Sum up *memory*, at the end of the program."""
    steps = memory.memories()
    notes = [INSIDES.switched] if INSIDES.switched else []
    findings = findings_of_picture(memory.picture) if memory.picture else ()
    return Forecast(
        allocated_bytes=max(step.allocated_bytes for step in steps),
        reserved_bytes=max(step.reserved_bytes for step in steps),
        steps=memory.steps,
        findings=tuple(findings),
        not_judged=tuple(f"{op}: {reason}" for op, reason in memory.live.unjudged),
        notes=tuple(notes),
    )
