"""What is measured beside what is stored: ``gpuperf diff --json``, ``accept`` and ``refresh``.

``accept_schema.json`` and ``refresh_schema.json`` beside this module are their JSON Schemas.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import Final

from ...model.baseline import AcceptancePlan
from ...model.baseline import BaselineChange
from ...model.codec import encode
from ...model.environment import Hardware
from ..command import accept_command
from ..command import measure_command


ACCEPTANCE_SCHEMA: Final = 1
"""Version of the formats."""


def acceptance_document(
    status: int, files: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what came of all *files*, as ``json.dumps`` takes it."""
    return {"schema": ACCEPTANCE_SCHEMA, "status": status, "files": list(files)}


def accepted_file(
    pending: Path,
    stored: Path,
    hardware: Hardware,
    changes: Sequence[BaselineChange],
    plan: AcceptancePlan,
) -> dict[str, Any]:
    """Return what accepting *pending* does, or would, and what accepts the rest."""
    commands = {
        "drifted": accept_command(str(pending), str(stored.parent), plan.drifted),
        "missed": measure_command(plan.missed, hardware.kind),
    }
    tests = {name: list(getattr(plan, name)) for name in ("drifted", "missed", "unfit")}
    return {
        "pending": str(pending),
        **stored_file(stored, hardware, changes),
        "accepted": list(plan.entries),
        "kept": [kept.test for kept in plan.kept],
        **tests,
        "drifts": encode(plan.drifts),
        "commands": [text for name, text in commands.items() if tests[name]],
    }


def stored_file(
    stored: Path, hardware: Hardware, changes: Sequence[BaselineChange]
) -> dict[str, Any]:
    """Return how the file of baselines of *hardware* moves."""
    return {
        "baselines": str(stored),
        "hardware": hardware.key,
        "changes": encode(tuple(changes)),
    }
