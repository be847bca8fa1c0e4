"""The causes that a step waits for, in sentences: share, line and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...model.finding import FULL
from ...model.finding import Bottleneck
from ...model.finding import Diagnosis
from ...model.finding import Part
from ...model.metrics import BUSY
from ...model.metrics import LOADER_WAIT
from ...model.metrics import STEP_MS
from ..remedies import BOTTLENECK_REMEDIES
from .findings import short


WAITED_FOR: Final = frozenset({STEP_MS.name, BUSY.name, LOADER_WAIT.name})
"""Metrics that fail because the step waits."""

BOTTLENECK_NAMES: Final = {
    Bottleneck.LOADER: "the loader",
    Bottleneck.COPIES: "copies",
    Bottleneck.SYNCS: "syncs",
    Bottleneck.LAUNCHES: "launches",
    Bottleneck.COMMUNICATION: "communication",
    Bottleneck.GPU: "the GPU",
    Bottleneck.HOST: "the CPU",
}

WHY: Final = {
    Bottleneck.LOADER: "the step waits for its next batch",
    Bottleneck.COPIES: "no kernel runs until the copy is done",
    Bottleneck.SYNCS: "while the CPU waits for the GPU, it prepares no work for it",
    Bottleneck.LAUNCHES: "the GPU finishes before the CPU has launched more",
    Bottleneck.COMMUNICATION: "a collective runs while nothing computes",
    Bottleneck.GPU: "kernels compute",
    Bottleneck.HOST: "all the rest",
}

NOT_BLOCKING: Final = "copy less (uint8), or the next batch on a stream of its own"
"""What is left to do about copies that the host does not wait for."""

COUNTED_ONLY: Final = "how long: only a GPU can show"

LEAST_NAMED_PERCENT: Final = 10
"""A smaller part of a step explains no failure of its time."""

ALIKE: Final = 1.1
"""An isolated step that takes so many times as long overlaps with nothing."""


def heading(diagnosis: Diagnosis) -> str:
    """Say what the parts are parts of."""
    if diagnosis.first.percent is None:
        return "what a GPU would wait for:"
    return "where the time of a step goes:"


def sentences(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Yield for each part its share, or how often it happens, and what to know of it."""
    for part in diagnosis.parts:
        yield _amount(part), f"{_named(part)}: {'; '.join(_said(part, diagnosis))}"
    copying = diagnosis.copying_percent
    if copying is not None and copying >= 1:
        yield _percent(copying), "a copy runs on the GPU, beside kernels or not"


def in_a_line(diagnosis: Diagnosis) -> str:
    """Name what a step waits for most; nothing if nobody can tell how long."""
    first = diagnosis.first
    if first.percent is None or first.bottleneck is Bottleneck.HOST:
        return ""
    if first.percent < LEAST_NAMED_PERCENT:
        return ""
    if first.bottleneck is Bottleneck.GPU:
        return f"for the GPU, which computes in {_percent(first.percent)} of the step"
    return f"for {_named(first)}, {_percent(first.percent)} of the step"


def _amount(part: Part) -> str:
    if part.percent is None:
        return f"{part.per_step} per step"
    return _percent(part.percent)


def _named(part: Part) -> str:
    place = short(part.location)
    return BOTTLENECK_NAMES[part.bottleneck] + (f" at {place}" if place else "")


def _said(part: Part, diagnosis: Diagnosis) -> Iterator[str]:
    yield WHY[part.bottleneck]
    if part.percent is None:
        yield COUNTED_ONLY
    elif part.bottleneck is Bottleneck.SYNCS:
        yield (
            f"the CPU is blocked for {_percent(part.blocked_percent)}, partly by kernels "
            f"queued before; removing the wait saves at most {_percent(part.percent)}"
        )
    elif part.bottleneck is Bottleneck.LAUNCHES and _overlaps_nothing(diagnosis):
        yield f"an isolated step takes {diagnosis.isolated:.2f} times as long"
    yield from _to_do(part)


def _overlaps_nothing(diagnosis: Diagnosis) -> bool:
    return diagnosis.isolated is not None and diagnosis.isolated <= ALIKE


def _to_do(part: Part) -> Iterator[str]:
    if part.bottleneck is Bottleneck.COPIES and not part.per_step:
        yield NOT_BLOCKING
    elif part.bottleneck is Bottleneck.GPU and (part.percent or 0.0) >= FULL:
        yield "only faster kernels, or fewer, make the step faster"
    elif part.bottleneck in BOTTLENECK_REMEDIES:
        yield BOTTLENECK_REMEDIES[part.bottleneck]


def _percent(value: float) -> str:
    return f"{value:.0f} %"
