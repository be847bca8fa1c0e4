"""Where a finding is, from where something happened."""

from __future__ import annotations

from typing import Any

from ..devices.sites import Site


def where_of(site: Site) -> dict[str, Any]:
    """Fields of a finding that say where it is."""
    elsewhere = site.innermost != site.location
    return {
        "location": site.location or site.innermost,
        "phase": site.phase,
        "innermost": site.innermost if elsewhere and site.location else None,
        "forward": site.forward,
    }
