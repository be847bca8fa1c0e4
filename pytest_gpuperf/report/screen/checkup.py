"""Findings of ``gpuperf doctor``: what can be measured, then a labelled line a subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Final

from ...model.baseline import ENOUGH_RUNS
from ...model.checkup import Circumstance
from ...model.checkup import Examination
from ...model.checkup import StoredSuite
from ...model.environment import Capability
from ...model.environment import Hardware
from ...model.measurement import Measurement
from ...model.metric import counted
from ...model.metrics import PAGEABLE_COPIES
from ...model.metrics import SENTINELS
from ...model.metrics import STEP_MS
from ...model.metrics import SYNCS
from ...model.metrics import limited_by
from ...model.verdict import SuiteAcuity
from ..numbers import format_value
from ..numbers import join_fitting
from ..wrapping import text_width
from ..wrapping import wrapped
from .precision import acuity_sentence


CHECKUP_INDENT: Final = 11
MOST_MOVED: Final = 0.015
"""Ratio by which a clock may move before it is called moving."""

ADVICE_ONLY: Final = frozenset({"workers"})
"""Subjects with advice about the program, shown with ``-v``."""

MOST_CLOCK: Final = "max SM clock"
"""Key of a GPU's highest clock in the recorded software."""


def ability_lines(found: Examination) -> tuple[str, ...]:
    """Say in a line what can be measured here, and what cannot."""
    kind = found.environment.hardware.kind
    predicts = kind.has(Capability.FORECAST)
    areas = {
        "waits": (SYNCS,),
        "copies": (PAGEABLE_COPIES,),
        "predicted memory" if predicts else "memory": limited_by("mem_mb"),
        "time": (STEP_MS,),
    }
    can = [a for a in areas if any(m.name not in found.unmeasured for m in areas[a])]
    where = "Without a GPU" if predicts else f"On {found.environment.hardware.name}"
    lacking = [area.capitalize() for area in areas if area not in can]
    cannot = f" {_and(lacking)} - no." if lacking else ""
    text = f"{where}: {_and(can)} - yes.{cannot} (-v lists all metrics)"
    return wrapped(text, rest="  ")


def _and(words: Sequence[str]) -> str:
    *first, last = words or ("nothing",)
    return f"{', '.join(first)} and {last}" if first else last


def examined_lines(found: Examination, *, verbose: bool) -> tuple[str, ...]:
    """Say what disturbs; all about the device and its metrics if *verbose*."""
    hardware, software = found.environment.hardware, found.environment.software
    name = f"{hardware.kind.value} {hardware.name}".strip()
    versions = ", ".join(f"{key} {value}" for key, value in sorted(software.items()))
    wanted = [c for c in found.circumstances if verbose or _wants_something(c)]
    return (
        *(() if found.refusal else ability_lines(found)),
        *(_labelled("device", f"{name} ({hardware.key})") if verbose else ()),
        *(_labelled("software", versions) if verbose else ()),
        *(_unmeasured(found.unmeasured) if verbose else ()),
        *_circumstances(wanted),
        *_labelled("disturbed", found.disturbance or ""),
    )


def _wants_something(circumstance: Circumstance) -> bool:
    """Whether there is something to do before numbers are good."""
    return bool(circumstance.advice) and circumstance.subject not in ADVICE_ONLY


def stored_lines(stored: StoredSuite, options: Sequence[str]) -> tuple[str, ...]:
    """Say what the baselines of this hardware are good for, or how to record them.

    *options* are those that the command to record them needs.
    """
    if not stored.tests:
        command = " ".join(
            ("pytest", "--gpuperf", *options, "--gpuperf-update=missing")
        )
        return _labelled("baselines", f"none in {stored.file}, record with: {command}")
    tests = counted(stored.tests, "test")
    return (
        *_labelled("baselines", f"{stored.file}: {tests}"),
        *_thin(stored.thin),
        *_labelled("", acuity_sentence(stored.acuity) if stored.acuity else ""),
    )


def trial_lines(
    trials: Sequence[Measurement], acuity: SuiteAcuity | None, *, verbose: bool
) -> tuple[str, ...]:
    """Say what the fixed step showed: disturbances, clocks, noise, and all metrics."""
    if not trials:
        return ()
    return (
        *(_labelled("measured", _measured(trials[-1])) if verbose else ()),
        *_labelled("disturbed", _disturbed(trials)),
        *_labelled("clocks", _clocks(trials)),
        *_labelled("noise", _noise(trials, acuity)),
    )


def no_clock_lines() -> tuple[str, ...]:
    """Say what there is in place of times on a device without a clock."""
    return _labelled(
        "noise",
        "none: counts and predicted sizes are exact; --device=cpu looks at the times of "
        "this CPU",
    )


def wrong_lines(wrong: Sequence[str], hardware: Hardware) -> tuple[str, ...]:
    """End with the reasons not to measure on *hardware*, or with none."""
    if not wrong:
        return (f"gpuperf: can measure on {hardware.in_words}",)
    reasons = "; ".join(wrong)
    return wrapped(f"gpuperf: cannot measure on {hardware.in_words}: {reasons}")


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


def _measured(trial: Measurement) -> str:
    sentinels = {metric.name for metric in SENTINELS}
    names = (*trial.times, *trial.exact)
    return ", ".join(name for name in names if name not in sentinels)


def _disturbed(trials: Sequence[Measurement]) -> str:
    reasons = Counter(why for trial in trials for why in trial.dirty)
    found = [f"{count} of {len(trials)} runs: {why}" for why, count in reasons.items()]
    clean = sum(not trial.dirty for trial in trials)
    if clean < min(ENOUGH_RUNS, len(trials)):
        found.append(
            "ask again when the machine is quiet, this is its noise under load"
        )
    return "; ".join(found)


def _clocks(trials: Sequence[Measurement]) -> str:
    """Say whether the clock behind each run is the same; nothing if none was seen."""
    clocks = (trial.board.sm_mhz for trial in trials)
    seen = [mhz for mhz in clocks if mhz is not None]
    if not seen:
        return ""
    least, most = min(seen), max(seen)
    software = trials[-1].environment.software
    highest = f", of at most {software[MOST_CLOCK]}" if MOST_CLOCK in software else ""
    if most <= least * (1 + MOST_MOVED):
        return f"{most} MHz after each of {len(seen)} runs{highest}"
    return (
        f"{least} to {most} MHz after {len(seen)} runs{highest}: they move; hold them "
        f"with nvidia-smi --lock-gpu-clocks={least}"
    )


def _noise(trials: Sequence[Measurement], acuity: SuiteAcuity | None) -> str:
    if acuity is None:
        return f"unknown: it takes 2 runs with a time, found {len(trials)}"
    step = trials[-1].times[STEP_MS.name].q50
    return (
        f"a fixed step of {format_value(STEP_MS, step, digits=2)} in {len(trials)} "
        f"fresh processes: {acuity_sentence(acuity)}"
    )


def _labelled(label: str, text: str) -> tuple[str, ...]:
    """Wrap *text* beside its label; no line where there is no text."""
    if not text:
        return ()
    return wrapped(text, first=label.ljust(CHECKUP_INDENT), rest=" " * CHECKUP_INDENT)
