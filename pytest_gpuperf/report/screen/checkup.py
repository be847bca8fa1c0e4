"""Findings of ``gpuperf doctor``: what can be measured, then a labelled line a subject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...model.baseline import ENOUGH_RUNS
from ...model.environment import Capability, Circumstance, Examination
from ...model.metrics import PAGEABLE_COPIES, PEAK_ALLOCATED, STEP_MS, SYNCS, counted
from ...model.verdict import SuiteAcuity
from ..document import Block, Text, text_width
from ..numbers import join_fitting
from .counts import acuity_sentence


CHECKUP_INDENT: Final = 11

Labelled = tuple[str, str]
"""A subject and its text; a subject without text is left out."""


def checkup_blocks(found: Examination, stored: Iterable[Labelled]) -> Iterator[Block]:
    """Say what can be measured, what was *found* and is *stored*, and a reason not to measure."""
    if not found.refusal:
        yield Text(_abilities(found), rest="  ")
    for label, text in (*_examined(found), *stored):
        yield Text(text, label.ljust(CHECKUP_INDENT), " " * CHECKUP_INDENT)
    where = found.environment.hardware.in_words
    can = f"cannot measure on {where}: {found.refusal}"
    yield Text(f"gpuperf: {can if found.refusal else f'can measure on {where}'}")


def _abilities(found: Examination) -> str:
    """Say in a line what can be measured here, and what cannot."""
    hardware = found.environment.hardware
    predicts = hardware.kind.has(Capability.FORECAST)
    areas = {
        "syncs": SYNCS,
        "copies": PAGEABLE_COPIES,
        "predicted memory" if predicts else "memory": PEAK_ALLOCATED,
        "time": STEP_MS,
    }
    can = [area for area, m in areas.items() if m.name not in found.unmeasured]
    where = "Without a GPU" if predicts else f"On {hardware.name}"
    lacking = [area.capitalize() for area in areas if area not in can]
    cannot = f" {_and(lacking)} - no." if lacking else ""
    return f"{where}: {_and(can)} - yes.{cannot}"


def _and(words: Sequence[str]) -> str:
    *first, last = words or ("nothing",)
    return f"{', '.join(first)} and {last}" if first else last


def _examined(found: Examination) -> Iterator[Labelled]:
    """Name the device, the metrics that cannot be judged here, and disturbances."""
    hardware, software = found.environment.hardware, found.environment.software
    name = f"{hardware.kind.value} {hardware.name}".strip()
    yield "device", f"{name} ({hardware.key})"
    yield (
        "software",
        ", ".join(f"{key} {value}" for key, value in sorted(software.items())),
    )
    for reason in dict.fromkeys(found.unmeasured.values()):
        names = (name for name, why in found.unmeasured.items() if why == reason)
        yield "unmeasured", f"{', '.join(names)}: {reason}"
    for one in found.circumstances:
        yield one.subject, _described(one)
    yield "disturbed", found.disturbance or ""


def _described(circumstance: Circumstance) -> str:
    """Say what was found, what it means and what to do, as far as there is anything."""
    meant = f": {circumstance.means}" if circumstance.means else ""
    advice = f"; {circumstance.advice}" if circumstance.advice else ""
    return f"{circumstance.found}{meant}{advice}"


def stored_words(
    file: str,
    tests: int,
    thin: Sequence[str],
    acuity: SuiteAcuity | None,
    options: Sequence[str],
) -> Iterator[Labelled]:
    """Say what the baselines in *file* are good for, or how to record them.

    *thin* tests have too few runs to blame anybody. *options* are those that the command
    to record them needs.
    """
    if not tests:
        command = " ".join(
            ("pytest", "--gpuperf", *options, "--gpuperf-update=missing")
        )
        yield "baselines", f"none in {file}, record with: {command}"
        return
    yield "baselines", f"{file}: {counted(tests, 'test')}"
    if thin:
        have = "1 has" if len(thin) == 1 else f"{len(thin)} have"
        yield "", f"{have} fewer than {ENOUGH_RUNS} runs, too few to fail a test:"
        yield "", join_fitting(thin, text_width() - CHECKUP_INDENT)
    yield "", acuity_sentence(acuity) if acuity else ""
