"""Findings of ``gpuperf doctor``: what can be measured, then a labelled line a subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...model.baseline import ENOUGH_RUNS
from ...model.environment import Capability, Circumstance, Examination
from ...model.metrics import PAGEABLE_COPIES, PEAK_ALLOCATED, STEP_MS, SYNCS, counted
from ...model.verdict import SuiteAcuity
from ..document import text_width, wrapped
from ..numbers import join_fitting
from .counts import acuity_sentence


CHECKUP_INDENT: Final = 11


def ability_lines(found: Examination) -> tuple[str, ...]:
    """Say in a line what can be measured here, and what cannot."""
    kind = found.environment.hardware.kind
    predicts = kind.has(Capability.FORECAST)
    areas = {
        "syncs": SYNCS,
        "copies": PAGEABLE_COPIES,
        "predicted memory" if predicts else "memory": PEAK_ALLOCATED,
        "time": STEP_MS,
    }
    can = [
        area for area, metric in areas.items() if metric.name not in found.unmeasured
    ]
    where = "Without a GPU" if predicts else f"On {found.environment.hardware.name}"
    lacking = [area.capitalize() for area in areas if area not in can]
    cannot = f" {_and(lacking)} - no." if lacking else ""
    text = f"{where}: {_and(can)} - yes.{cannot}"
    return wrapped(text, rest="  ")


def _and(words: Sequence[str]) -> str:
    *first, last = words or ("nothing",)
    return f"{', '.join(first)} and {last}" if first else last


def examined_lines(found: Examination) -> tuple[str, ...]:
    """Name the device, the metrics that cannot be judged here, and disturbances."""
    hardware, software = found.environment.hardware, found.environment.software
    name = f"{hardware.kind.value} {hardware.name}".strip()
    versions = ", ".join(f"{key} {value}" for key, value in sorted(software.items()))
    return (
        *(() if found.refusal else ability_lines(found)),
        *_labelled("device", f"{name} ({hardware.key})"),
        *_labelled("software", versions),
        *_unmeasured(found.unmeasured),
        *_circumstances(found.circumstances),
        *_labelled("disturbed", found.disturbance or ""),
    )


def last_lines(found: Examination) -> tuple[str, ...]:
    """End with the reason not to measure on the device, or with none."""
    hardware = found.environment.hardware.in_words
    if not found.refusal:
        return (f"gpuperf: can measure on {hardware}",)
    return wrapped(f"gpuperf: cannot measure on {hardware}: {found.refusal}")


def stored_lines(
    file: str,
    tests: int,
    thin: Sequence[str],
    acuity: SuiteAcuity | None,
    options: Sequence[str],
) -> tuple[str, ...]:
    """Say what the baselines in *file* are good for, or how to record them.

    *thin* tests have too few runs to blame anybody. *options* are those that the command
    to record them needs.
    """
    if not tests:
        command = " ".join(
            ("pytest", "--gpuperf", *options, "--gpuperf-update=missing")
        )
        return _labelled("baselines", f"none in {file}, record with: {command}")
    return (
        *_labelled("baselines", f"{file}: {counted(tests, 'test')}"),
        *_thin(thin),
        *_labelled("", acuity_sentence(acuity) if acuity else ""),
    )


def _unmeasured(unmeasured: Mapping[str, str]) -> tuple[str, ...]:
    reasons = dict.fromkeys(unmeasured.values())
    return tuple(
        line
        for reason in reasons
        for line in _labelled("unmeasured", f"{_names(unmeasured, reason)}: {reason}")
    )


def _circumstances(found: Sequence[Circumstance]) -> tuple[str, ...]:
    return tuple(
        line for one in found for line in _labelled(one.subject, _described(one))
    )


def _described(circumstance: Circumstance) -> str:
    """Say what was found, what it means and what to do, as far as there is anything."""
    meant = f": {circumstance.means}" if circumstance.means else ""
    advice = f"; {circumstance.advice}" if circumstance.advice else ""
    return f"{circumstance.found}{meant}{advice}"


def _names(unmeasured: Mapping[str, str], reason: str) -> str:
    return ", ".join(name for name, why in unmeasured.items() if why == reason)


def _thin(tests: Sequence[str]) -> tuple[str, ...]:
    if not tests:
        return ()
    count = "1 has" if len(tests) == 1 else f"{len(tests)} have"
    named = join_fitting(tests, text_width() - CHECKUP_INDENT)
    return (
        *_labelled(
            "", f"{count} fewer than {ENOUGH_RUNS} runs, too few to fail a test:"
        ),
        *_labelled("", named),
    )


def _labelled(label: str, text: str) -> tuple[str, ...]:
    """Wrap *text* next to its label; no line where there is no text."""
    if not text:
        return ()
    return wrapped(text, first=label.ljust(CHECKUP_INDENT), rest=" " * CHECKUP_INDENT)
