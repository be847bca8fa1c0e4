"""Marks and options that contradict each other, or apply to no existing hardware."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from ..errors import ErrorId
from ..errors import UsageError
from ..model.budget import Tolerance
from ..model.environment import DeviceKind
from ..model.metrics import STEP_MS


def refuse_blind(layers: Sequence[Tolerance], source: str) -> None:
    """Raise ``UsageError`` if a slowdown is ignored that must be noticed.

    The first of *layers* that names a bound decides it. *source* names their place.
    """
    detect = next((la.detect for la in layers if la.detect is not None), None)
    ms = next((la.ratios["ms"] for la in layers if "ms" in la.ratios), None)
    ignored = STEP_MS.tolerance if ms is None else ms
    if detect is None or detect >= ignored:
        return
    default = " by default" if ms is None else ""
    msg = (
        f"{source}: detect={100 * detect:.6g}% is less than the ms={100 * ignored:.6g}% that "
        f"is tolerated{default}, and a slowdown between them would pass in silence; make "
        "detect as large, or ms smaller"
    )
    raise UsageError(msg, ErrorId.GP206)


def unknown_kind(pattern: str) -> str:
    """Say what is wrong with an ``on`` that can match nothing; nothing if it may.

    Names of hardware have digits or blanks, and patterns have special characters.
    """
    kinds = [kind.value for kind in DeviceKind]
    is_word = pattern.replace("-", "").replace("_", "").isalpha()
    if not is_word or pattern.lower().partition("-")[0] in kinds:
        return ""
    offered = [kind for kind in kinds if kind != DeviceKind.SCRIPTED.value]
    near = get_close_matches(pattern.lower(), offered, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return (
        f"gpuperf.budget(on={pattern!r}) binds nowhere: expected a device kind "
        f"({', '.join(offered)}) or a pattern of a "
        'hardware\'s name, such as "*H200*"'
        f"{meant}"
    )
