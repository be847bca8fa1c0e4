"""Findings of ``gpuperf audit`` and ``gpuperf memory`` as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...devices.audit_record import StepAudit, Totals
from ...devices.memory_picture import Garbage
from ...model.codec import encode
from ...model.finding import Finding, Location
from ...model.forecast import Fit, Forecast, Saving
from ..line_context import with_context
from ..remedies import remedy_of


# The predicted memory of a program as JSON.


def memory_document(
    forecast: Forecast,
    savings: Mapping[Saving, Forecast | None],
    gib: float | None,
    fit: Fit | None,
) -> dict[str, Any]:
    """Return the *forecast* and those with *savings* as ``json.dumps`` takes them."""
    document: dict[str, Any] = encode(forecast)
    document["savings"] = [
        {
            "saving": saving.value,
            "allocated_bytes": None if again is None else again.allocated_bytes,
        }
        for saving, again in savings.items()
    ]
    document["gib"] = gib
    document["fit"] = None if fit is None else fit.value
    return document


NOTHING_RAN: Final = "nothing ran on the GPU, so nothing was judged"


def audit_document(audit: StepAudit, notes: Sequence[str]) -> dict[str, Any]:
    """Return *audit* and *notes* as ``json.dumps`` takes it; files are absolute paths."""
    notes = notes if audit.touched_gpu else (NOTHING_RAN, *notes)
    return {
        "judged": audit.touched_gpu,
        "findings": [_finding(finding, audit.steps) for finding in audit.findings],
        "not_checked": [_unchecked(unchecked) for unchecked in audit.not_checked],
        "as_eager": [_unchecked(unchecked) for unchecked in audit.as_eager],
        "notes": list(notes),
        "steps": audit.steps,
        "step_mark": audit.mark.value if audit.mark else None,
        "syncs_per_step": audit.per_step if audit.steps > 1 else None,
        "totals": _totals(audit.totals),
        "garbage": _garbage(audit.garbage),
        "growth": _garbage(audit.growth),
    }


def _totals(totals: Totals) -> dict[str, Any]:
    """Return *totals* as one object, each count by the name of its metric."""
    others = dict(encode(totals))
    counts = others.pop("counts")
    return {**others, **counts}


def _garbage(garbage: Garbage | None) -> dict[str, Any] | None:
    if garbage is None:
        return None
    lines = [
        {"op": held.op, **_where(held), "bytes": held.held_bytes}
        for held in garbage.held
    ]
    return {"bytes_per_step": garbage.nbytes, "cycle": garbage.cycle, "lines": lines}


def _finding(finding: Finding, steps: int) -> dict[str, Any]:
    remedy = remedy_of(replace(with_context(finding), of_steps=steps))
    return {
        "kind": finding.kind.value,
        "op": finding.op,
        "reason": finding.reason,
        **_where(finding),
        "torch": _place(finding.torch),
        "count": finding.per_step,
        "in_steps": finding.in_steps,
        # After the last step too; of a single step nobody knows what repeats.
        "once": finding.in_steps == 1 < steps,
        "fix": remedy.do if remedy else None,
    }


def _unchecked(unchecked: Finding) -> dict[str, Any]:
    return {
        "op": unchecked.op,
        "reason": unchecked.reason,
        **_where(unchecked),
        "count": unchecked.per_step,
    }


def _where(finding: Finding) -> dict[str, Any]:
    nowhere = {"file": None, "line": None, "function": None}
    return {
        **(_place(finding.location) or nowhere),
        "innermost": _place(finding.inner),
        "forward": _place(finding.forward),
        "phase": finding.phase.value if finding.phase else None,
    }


def _place(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "function": location.function,
    }
