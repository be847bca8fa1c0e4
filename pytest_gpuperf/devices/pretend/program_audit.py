"""The audit of a program with its own loop: a step ends with the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch.optim.optimizer import register_optimizer_step_post_hook

from .audit_record import AuditFinding
from .audit_record import StepAudit
from .gpu import PretendGpu


class ProgramAudit:
    """Separates what a program does in every step from what it does once at its start.

    A program of a single step does not show the difference.
    """

    def __init__(self, gpu: PretendGpu) -> None:
        self._gpu = gpu
        self._steps = 0
        self._begun: Mapping[AuditFinding, int] = {}
        register_optimizer_step_post_hook(self._end)

    def _end(self, *_: object) -> None:
        self._steps += 1
        if self._steps == 1:
            found = self._gpu.so_far().findings
            self._begun = {replace(f, count=0): f.count for f in found}

    def audit(self) -> StepAudit:
        """Return all findings; those not seen again after the first step are ``once``."""
        audit = self._gpu.end_step()
        begun = self._begun if self._steps > 1 else {}
        findings = tuple(
            replace(f, once=begun.get(replace(f, count=0)) == f.count)
            for f in audit.findings
        )
        return replace(audit, findings=findings, steps=self._steps)
