"""Settings of the allocator under which the simulation does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")

DEFAULTS: Final = {"backend": "native", "expandable_segments": "false"}
"""Values that change nothing, of the settings that have one."""

CHANGES_RESERVED: Final = frozenset(
    {
        "backend",
        "expandable_segments",
        "garbage_collection_threshold",
        "large_segment_size_mb",
        "max_split_size_mb",
        "roundup_power2_divisions",
    }
)
CHANGES_ALLOCATED: Final = frozenset(
    {"backend", "max_split_size_mb", "roundup_power2_divisions"}
)


def settings_against_reserved(environment: Mapping[str, str]) -> str | None:
    """Say which setting makes a prediction of reserved memory wrong, if one does."""
    return _first(environment, CHANGES_RESERVED)


def settings_against_allocated(environment: Mapping[str, str]) -> str | None:
    """Say which setting makes a prediction of allocated memory wrong, if one does."""
    return _first(environment, CHANGES_ALLOCATED)


def _first(environment: Mapping[str, str], names: frozenset[str]) -> str | None:
    for variable in VARIABLES:
        for setting in environment.get(variable, "").split(","):
            name, _, value = (part.strip() for part in setting.partition(":"))
            if name in names and value.lower() != DEFAULTS.get(name):
                return (
                    f"{variable} sets {setting.strip()}, and the simulated allocator "
                    "has its defaults: unset it, or measure on a GPU"
                )
    return None
