"""GitLab's code quality report: regressions at the lines of a merge request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from typing import Final

from ...judge.wording import WOULD_HAVE_FAILED
from ...model.verdict import Outcome
from ..command import DEFAULT_INVOCATION
from ..command import Invocation
from .worst_findings import Remark
from .worst_findings import Sources
from .worst_findings import advice
from .worst_findings import place
from .worst_findings import sentence
from .worst_findings import stored_by


CODE_QUALITY_FILE: Final = "gl-code-quality-report.json"

SEVERITIES: Final = {
    Outcome.REGRESSED: "major",
    Outcome.OVER_BUDGET: "major",
    Outcome.INCONCLUSIVE: "info",
    Outcome.NO_BASELINE: "info",
}


def code_quality(
    found: Iterable[Remark],
    sources: Sources,
    invocation: Invocation = DEFAULT_INVOCATION,
) -> str:
    """Return the report; *invocation* is how the tests are measured again.

    The fingerprint is made of test and metric without any number, so that GitLab sees
    the same issue on the next commit.
    """
    issues = [
        _issue(remark, sources, invocation)
        for remark in found
        if remark.outcome in SEVERITIES
    ]
    return json.dumps(issues, indent=1) + "\n"


def _issue(remark: Remark, sources: Sources, invocation: Invocation) -> dict[str, Any]:
    file, line = place(remark, sources.is_ours)
    outcome = remark.outcome or Outcome.NOT_JUDGED
    check = f"gpuperf/{outcome.value.replace(' ', '-')}"
    identity = f"{check}\0{remark.test}\0{remark.metric}"
    said = f"{WOULD_HAVE_FAILED}: " * remark.is_warned + sentence(remark)
    said = f"{said} in {remark.test}"
    tips = (advice(remark, sources.is_ours), stored_by(remark, invocation))
    return {
        "description": ": ".join(filter(None, (said, *tips))),
        "check_name": check,
        "fingerprint": sha256(identity.encode("utf-8", "replace")).hexdigest(),
        "severity": "minor" if remark.is_warned else SEVERITIES[outcome],
        "location": {"path": sources.path(file), "lines": {"begin": line}},
    }
