"""``gpuperf ab ... -- train.py``: one program on both sides, on the simulated GPU.

Nothing is timed there. Syncs, copies and bytes of all its steps are counted, and the peak
of the first ones is predicted, as ``gpuperf audit`` and ``gpuperf memory`` do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from ..compare_commits.sides import Side, checked_out
from ..compare_commits.trainings import FEW
from ..devices.audit_record import StepAudit
from ..errors import ErrorId, UsageError
from ..judge.process_pairs import MOST_PAIRS, Pair, judge_call
from ..judge.training import judge_training
from ..model.ab import AbRun, Comparison
from ..model.budget import Tolerance
from ..model.environment import SIMULATED_GPU, Environment
from ..model.finding import Finding
from ..model.forecast import Forecast
from ..model.measurement import Measurement
from ..model.metric import counted
from ..model.metrics import (
    D2H_BYTES,
    H2D_BYTES,
    PAGEABLE_COPIES,
    PEAK_ALLOCATED,
    STEP_MS,
    SYNCS,
)
from ..model.training import Training, TrainingAnswer, TrainingRecord
from ..runner.fork_server import HASH_SEED
from ..runner.relocation import moved_path
from ..sharing.processes import EXIT_INTERRUPTED, SIGNALLED
from ..worker.items import below
from .memory import PROGRAM_STEPS
from .script import Program, check_script
from .script_process import Asked, ScriptAnswer, ScriptRequest, run_program, unfinished


SIMULATED: Final = Environment(hardware=SIMULATED_GPU)

PROGRAM_ENGINE: Final = (
    "the program, run on each side on the simulated GPU, which has no clock; counts and "
    "bytes are those of all its steps"
)

COUNTED: Final = (PAGEABLE_COPIES.name, H2D_BYTES.name, D2H_BYTES.name)
"""Sums of a program that are compared, and its syncs."""


def program_named(typed: Sequence[str]) -> Program | None:
    """Return the script that is *typed*, unless it is tests or an option of pytest.

    Raises ``UsageError`` if it cannot be read.
    """
    first = Path(typed[0]) if typed else Path()
    is_test = first.name.startswith("test_") or first.stem.endswith("_test")
    if first.suffix != ".py" or is_test:
        return None
    check_script(typed[0])
    return Program(name=typed[0], is_module=False, arguments=tuple(typed[1:]))


def compare_program(
    sides: tuple[Side, Side], program: Program, announce: Callable[[str], None]
) -> AbRun:
    """Run *program* on both *sides*, again while they differ, and say what moved.

    Raises ``UsageError`` if it fails, or does nothing on the GPU, on a side.
    """
    pairs: list[Pair] = []
    found = Comparison(settled=False)
    peaks: list[Forecast | None] = []
    with checked_out(sides) as (before, after, _):
        while not found.settled:
            announce(f"run {len(pairs) + 1} of at most {MOST_PAIRS}: {program.name}")
            if not _are_equal(peaks):  # or another run would say it again
                peaks = [_predicted(side, program) for side in (before, after)]
            first, second = map(partial(_measured, program), (before, after), peaks)
            pairs.append((first, second))
            last = len(pairs) == MOST_PAIRS
            found = judge_call(pairs, Tolerance(), last=last)
        announce(f"compared in {counted(len(pairs), 'run')} of each side")
        announce(f"training: {program.name}")
        training = _trained((before, after), program)
    return AbRun(
        before=before.label,
        after=after.label,
        device=SIMULATED.hardware.key,
        engine=PROGRAM_ENGINE,
        calls=(replace(found, training=training),),
        notes=(*before.notes, *after.notes),
    )


def _trained(sides: tuple[Side, Side], program: Program) -> Training:
    """Say whether *program* trains the same on both *sides*, after a look or two."""
    runs: list[list[TrainingRecord]] = []
    for number in range(FEW):
        try:
            found = [_answer(s, program, Asked.TRAINING, number) for s in sides]
        except UsageError as error:
            return Training(answer=TrainingAnswer.NOT_COMPARED, text=error.text)
        runs.append([each.training for each in found if each.training])
        judged = judge_training(*zip(*runs, strict=True))
        if judged.answer is not TrainingAnswer.DIFFERS:
            break
    return judged


def _predicted(side: Side, program: Program) -> Forecast | None:
    forecast = _answer(side, program, Asked.MEMORY).forecast
    return None if forecast is None or forecast.not_checked else forecast


def _are_equal(peaks: Sequence[Forecast | None]) -> bool:
    return len({peak and peak.allocated_bytes for peak in peaks}) == 1


def _measured(program: Program, side: Side, forecast: Forecast | None) -> Measurement:
    audit = _answer(side, program, Asked.AUDIT).audit
    if audit is None or not audit.touched_gpu:
        msg = (
            f"{side.label}: {program.name} did nothing on the GPU: nothing was compared"
        )
        raise UsageError(msg, ErrorId.GP709)
    counts = {name: audit.totals.counts[name] for name in COUNTED}
    exact = {SYNCS.name: audit.totals.syncs, **counts}
    findings = [*_of_a_step(audit)]
    if forecast is not None:
        exact[PEAK_ALLOCATED.name] = forecast.allocated_bytes
        findings += forecast.findings
    measurement = Measurement(
        test=program.name,
        environment=SIMULATED,
        exact=exact,
        unmeasured={STEP_MS.name: "the simulated GPU has no clock"},
        findings=tuple(findings),
        operations=audit.operations,
    )
    return below(Path(side.relocation.root), measurement)


def _of_a_step(audit: StepAudit) -> Iterator[Finding]:
    """Yield syncs and copies; those of all steps are counted per step."""
    steps = max(1, audit.steps)
    for found in (*audit.findings, *audit.copies):
        is_once = found.in_steps == 1
        count = found.per_step if is_once else -(-found.per_step // steps)
        yield replace(found, per_step=count, in_steps=0, of_steps=0)


def _answer(
    side: Side, program: Program, asked: Asked, number: int = 0
) -> ScriptAnswer:
    """Run *program* on *side*, for the time of this *number*; raise ``UsageError`` with its last line if it fails."""
    to = side.relocation.replaced
    arguments = tuple(map(to, program.arguments))
    request = ScriptRequest(
        program=replace(program, name=to(program.name), arguments=arguments),
        root=side.relocation.root,
        asked=asked,
        steps=PROGRAM_STEPS,
        relocation=side.relocation,
        packages=side.packages,
    )
    path = moved_path(os.environ, side.relocation, side.packages.path)
    with TemporaryFile() as output:
        streams = {"stdout": output, "stderr": output}
        # Strings of a set come in the same order on both sides, unless the user says so.
        environment = {HASH_SEED: f"{number}", **os.environ, **path}
        process = {"cwd": side.directory(), "env": environment}
        try:
            code, answer = run_program(request, **streams, **process)
        except UsageError as error:
            msg = f"{side.label}: {error.text}"
            raise UsageError(msg, error.error_id) from None
        _refuse_failure(code, f"{side.label}: {program.name}", output)
    if answer == ScriptAnswer():
        msg = f"{side.label}: {unfinished(program, code)}"
        raise UsageError(msg, ErrorId.GP709)
    return answer


def _refuse_failure(code: int, program: str, output: IO[bytes]) -> None:
    """Raise what ends this command too, or ``UsageError`` with the last line."""
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if (
        code == SIGNALLED + signal.SIGTERM
    ):  # it was passed on, and has ended nothing here
        raise SystemExit(code)
    if code:
        output.seek(0)
        lines = output.read().decode(errors="replace").split("\n")
        said = next((line for line in reversed(lines) if line.strip()), "")
        msg = f"{program} ended with exit status {code}: {said}"
        raise UsageError(msg, ErrorId.GP709)
