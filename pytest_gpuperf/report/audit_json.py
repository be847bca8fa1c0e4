"""What an audit found, as JSON for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..devices.pretend.record import AuditFinding
from ..devices.pretend.record import Site
from ..devices.pretend.record import StepAudit
from ..devices.pretend.record import Unjudged
from ..model.codec import encode
from ..model.finding import Location


def audit_document(audit: StepAudit, notes: Sequence[str]) -> dict[str, Any]:
    """Return *audit* and *notes* as ``json.dumps`` takes it; files are absolute paths."""
    return {
        "findings": [_finding(finding) for finding in audit.findings],
        "not_judged": [_unjudged(unjudged) for unjudged in audit.not_judged],
        "as_eager": [_unjudged(unjudged) for unjudged in audit.as_eager],
        "notes": list(notes),
        "totals": encode(audit.totals),
    }


def _finding(finding: AuditFinding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "op": finding.op,
        "reason": finding.reason,
        **_site(finding.site),
        "count": finding.count,
    }


def _unjudged(unjudged: Unjudged) -> dict[str, Any]:
    return {
        "op": unjudged.op,
        "reason": unjudged.reason,
        **_site(unjudged.site),
        "count": unjudged.count,
    }


def _site(site: Site) -> dict[str, Any]:
    place = site.location or site.innermost
    nowhere = {"file": None, "line": None, "function": None}
    return {
        **(_place(place) or nowhere),
        "innermost": _place(site.innermost),
        "forward": _place(site.forward),
        "phase": site.phase.value,
    }


def _place(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {
        "file": location.file,
        "line": location.line,
        "function": location.function,
    }
