"""Waits of an audit as SARIF 2.1.0, which GitHub's code scanning shows at their lines."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from typing import Final

from ...devices.audit_record import StepAudit
from ...model.finding import Finding
from ...model.finding import Location
from ..remedies import WAIT_REMEDIES
from ..remedies import Remedy
from ..screen.audit import AuditView
from ..screen.audit import is_in_each_step
from ..screen.audit import reason_of
from ..screen.audit import remedy_of_wait


SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
SOURCE_ROOT: Final = "%SRCROOT%"
"""The base of all paths: by this name GitHub knows the repository's root."""

RULE_NUMBERS: Final = {
    remedy.rule: number for number, remedy in enumerate(WAIT_REMEDIES)
}
"""The number of each rule in the list of rules."""

RuleGroup = tuple[Remedy, Location]


def sarif(
    audit: StepAudit,
    notes: Iterable[str],
    view: AuditView,
    *,
    program: str,
    version: str,
) -> dict[str, Any]:
    """Return the log as ``json.dumps`` takes it; paths are relative to ``view.here``.

    A result is a line that waits, for what its rule is about; what happens once is none.
    Lines outside of that folder are counted in a notification. *program* tells apart the
    logs of several scripts, and *version* is that of this package.
    """
    waits = [f for f in audit.findings if f.is_certain and not f.once]
    groups: dict[RuleGroup, list[Finding]] = {}
    outside = 0
    for found in waits:
        place = found.location
        if place is None or _uri(place, view) is None:
            outside += found.per_step
        else:
            groups.setdefault((remedy_of_wait(found, view), place), []).append(found)
    said = [*notes, *([_outside(outside)] if outside else [])]
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [_run(groups, said, view, program, version)],
    }


def _outside(waits: int) -> str:
    return f"{waits} waits are on lines outside of the repository"


def _run(
    groups: Mapping[RuleGroup, Sequence[Finding]],
    notes: Iterable[str],
    view: AuditView,
    program: str,
    version: str,
) -> dict[str, Any]:
    rules = [_rule(remedy) for remedy in WAIT_REMEDIES]
    driver = {"name": "gpuperf", "version": version, "rules": rules}
    notices = [{"level": "note", "message": {"text": note}} for note in notes]
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"gpuperf-audit/{program}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": True, "toolExecutionNotifications": notices}
        ],
        "results": list(_results(groups, view)),
    }


def _rule(remedy: Remedy) -> dict[str, Any]:
    cause = f"The CPU waits for the GPU: {remedy.cause.replace('`', '')}"
    return {
        "id": remedy.rule,
        "name": "".join(word.title() for word in remedy.rule.split("-")),
        "shortDescription": {"text": cause},
        "fullDescription": {"text": f"{cause}. Until it goes on, no work is prepared."},
        "help": {"text": f"Fix: {remedy.do}."},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["performance"], "precision": "high"},
    }


def _results(
    groups: Mapping[RuleGroup, Sequence[Finding]], view: AuditView
) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for (remedy, place), causes in groups.items():
        uri = _uri(place, view) or ""
        identity = f"{remedy.rule}\0{uri}\0{place.function}\0{view.source(place)}"
        # The same line of text twice in a function: the second is another one.
        number = seen[identity] = seen.get(identity, 0) + 1
        mark = sha256(f"{identity}\0{number}".encode("utf-8", "replace")).hexdigest()
        often = any(is_in_each_step(f, view.steps) for f in causes)
        yield {
            "ruleId": remedy.rule,
            "ruleIndex": RULE_NUMBERS[remedy.rule],
            "level": "warning" if often else "note",
            "message": {"text": _message(remedy, causes, view)},
            "locations": [_location(uri, view.in_file(place))],
            "partialFingerprints": {"gpuperfLine/v1": mark},
        }


def _message(remedy: Remedy, causes: Sequence[Finding], view: AuditView) -> str:
    said = [
        f"{reason_of(found, view)}{_inside(found, view)}"
        for found in sorted(causes, key=lambda f: -f.per_step)
    ]
    return f"The CPU waits for the GPU here, {'; '.join(said)}. Fix: {remedy.do}."


def _inside(found: Finding, view: AuditView) -> str:
    inner = found.torch or found.innermost
    return f", inside {view.where(inner)}" if inner else ""


def _location(uri: str, place: Location) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": uri, "uriBaseId": SOURCE_ROOT},
            "region": {"startLine": place.line},
        },
        "logicalLocations": [{"name": place.function, "kind": "function"}],
    }


def _uri(place: Location, view: AuditView) -> str | None:
    """Return the path below ``view.here`` as a URI, or ``None`` outside of it."""
    from urllib.parse import quote

    file = Path(view.in_file(place).file)
    if not file.is_relative_to(view.here):
        return None
    return quote(file.relative_to(view.here).as_posix())
