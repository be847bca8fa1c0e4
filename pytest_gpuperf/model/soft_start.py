"""Until which day failures are warnings, and why; a day is ``2027-01-15``, in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from ..errors import ErrorId
from ..errors import UsageError
from .budget import refuse_unknown
from .budget import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Failures of one test are warnings; ``until`` is the last day, included."""

    until: str
    reason: str


def is_day(text: str) -> bool:
    """Whether *text* is a day that there is, as ``2027-01-15``."""
    try:
        # Python reads other forms of ISO 8601 as well, which do not sort as text.
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def parse_quarantine(keywords: Mapping[str, object]) -> Quarantine:
    """Return the quarantine that a mark's *keywords* say; raise ``UsageError`` if none."""
    refuse_unknown("quarantine", keywords, ("until", "reason"))
    until, reason = keywords.get("until"), keywords.get("reason")
    day = until.isoformat() if type(until) is date else until
    if not isinstance(day, str) or not is_day(day):
        msg = (
            f"gpuperf.quarantine(until={shown(until)}): expected the last day, as a "
            'datetime.date or as text, such as "2027-01-15"'
        )
        raise UsageError(msg, ErrorId.GP225)
    if not isinstance(reason, str) or not reason.strip():
        msg = (
            f"gpuperf.quarantine(reason={shown(reason)}): expected a text that says why, "
            'such as "slow since driver 580, issue 12"'
        )
        raise UsageError(msg, ErrorId.GP225)
    return Quarantine(until=day, reason=" ".join(reason.split()))
