"""What a machine can measure, for other programs: ``gpuperf doctor --json``.

``doctor_schema.json`` beside this module is its JSON Schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import Final

from ...model.checkup import Examination
from ...model.checkup import StoredSuite
from ...model.codec import encode
from ...model.measurement import Measurement
from ...model.metrics import STEP_MS
from ...model.verdict import SuiteAcuity


CHECKUP_SCHEMA: Final = 1
"""Version of the format."""


def checkup_document(
    found: Examination,
    stored: StoredSuite,
    trials: Sequence[Measurement],
    acuity: SuiteAcuity | None,
    wrong: Sequence[str],
) -> dict[str, Any]:
    """Return what ``json.dumps`` takes; *trials* are runs of a fixed step, if any."""
    environment, hardware = found.environment, found.environment.hardware
    times = [trial.times[STEP_MS.name].q50 for trial in trials if trial.times]
    return {
        "schema": CHECKUP_SCHEMA,
        "status": int(bool(wrong)),
        "wrong": list(wrong),
        "device": {**encode(hardware), "key": hardware.key},
        "software": dict(environment.software),
        "unmeasured": dict(found.unmeasured),
        "circumstances": encode(found.circumstances),
        "disturbed": [
            *filter(None, [found.disturbance]),
            *dict.fromkeys(why for trial in trials for why in trial.dirty),
        ],
        "baselines": encode(stored),
        "step_ms": times,
        "noise": encode(acuity),
    }
