"""``gpuperf doctor``: what can be measured here, and how well."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Final

from ..baselines.store import path_of
from ..baselines.store import read
from ..errors import ErrorId
from ..errors import QuotedError
from ..errors import RunError
from ..judge.readings import stored_values
from ..model.baseline import ENOUGH_RUNS
from ..model.baseline import FULL_RUNS
from ..model.baseline import MOST_RUNS
from ..model.checkup import CheckupRequest
from ..model.checkup import Examination
from ..model.checkup import StoredSuite
from ..model.codec import decode
from ..model.codec import encode
from ..model.environment import Capability
from ..model.environment import DeviceKind
from ..model.environment import Hardware
from ..model.measurement import Measurement
from ..model.metrics import STEP_MS
from ..model.results import ProjectSettings
from ..report.screen.checkup import examined_lines
from ..report.screen.checkup import no_clock_lines
from ..report.screen.checkup import stored_lines
from ..report.screen.checkup import trial_lines
from ..report.screen.checkup import wrong_lines
from ..runner.acuity import acuity_of
from ..runner.acuity import acuity_of_step
from ..runner.fork_server import ForkServer
from ..runner.fork_server import Job
from ..runner.fork_server import preloaded_for
from ..runner.reservation import Turns
from ..runner.reservation import alone
from ..runner.reservation import turns_at
from ..visible import printed
from .files import JobServer
from .files import settings_by
from .shared_options import announce


REST: Final = None

WRONG: Final = 1
"""Exit code where something makes every number wrong."""

LEAST_RUNS: Final = 2
PATIENCE: Final = 2
"""Multiple of its cap after which a process is killed."""

Answer = dict[str, Any]
Ask = Callable[[str, CheckupRequest], Answer]
"""Calls a function of ``runner.checkup`` in a fresh process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the device and the runs that measure how noisy it is."""
    parser.add_argument(
        "--device",
        "--gpuperf-device",
        dest="device",
        type=_kind,
        metavar="KIND",
        help="device to look at: cuda, pretend or cpu (default: as pytest --gpuperf)",
    )
    parser.add_argument(
        "--runs",
        type=_runs,
        default=FULL_RUNS,
        metavar="NUMBER",
        help="fresh processes that measure a fixed step (default: %(default)s)",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="list every metric, version and setting that was looked at",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print what was found; 1 if any number measured here would be wrong."""
    try:
        with closing(ForkServer(preloaded_for(arguments.device))) as server:
            server.wait_until_ready()
            project = settings_by(server)
            request = CheckupRequest(
                device=arguments.device or project.device,
                script=os.environ.get("GPUPERF_SCRIPT"),
            )
            return check(arguments, request, project, _asker(server))
    except RunError as error:
        sys.stderr.write(f"gpuperf: {error}\n")
        return WRONG


def check(
    arguments: argparse.Namespace,
    request: CheckupRequest,
    project: ProjectSettings,
    ask: Ask,
) -> int:
    """Look at the device, then at the baselines, then try a step; print as it comes."""
    found = _examined(ask, request)
    hardware = found.environment.hardware
    stored = _stored(Path(os.path.relpath(project.baselines)), hardware, project)
    # Printed at once: what follows takes up to a minute.
    _print(examined_lines(found, verbose=arguments.verbose))
    _print(stored_lines(stored, _options(arguments)))
    wrong = [found.refusal] if found.refusal else []
    if not hardware.kind.has(Capability.CLOCK):
        _print(no_clock_lines())
    elif not wrong:
        with closing(turns_at(found.slot, project.lock_seconds, announce)) as turns:
            trials, wrong = _trials(ask, request, arguments.runs, turns)
        acuity = acuity_of_step(trials, project.tolerance)
        _print(trial_lines(trials, acuity, verbose=arguments.verbose))
    _print(wrong_lines(wrong, hardware))
    return WRONG if wrong else 0


def _examined(ask: Ask, request: CheckupRequest) -> Examination:
    answer = ask("examine", request)
    if "error" in answer:
        raise QuotedError(answer["error"], ErrorId.GP401)
    return decode(Examination, answer["examination"])


def _trials(
    ask: Ask, request: CheckupRequest, runs: int, turns: Turns
) -> tuple[list[Measurement], list[str]]:
    """Try the step in fresh processes while their time lasts; return what went wrong.

    Each has the device alone, and others that measure have it between them.
    """
    spent = 0.0
    trials: list[Measurement] = []
    for number in range(runs):
        # Two runs at least, whatever they cost: one has no scatter.
        if len(trials) >= LEAST_RUNS and spent * (1 + 1 / number) > request.seconds:
            break
        # Per run, not around the loop: another process that measures gets its turn
        # between them.
        with alone(turns):
            start = time.monotonic()
            answer = _tried(ask, replace(request, number=number))
            spent += time.monotonic() - start
        if "error" in answer:
            return trials, [answer["error"]]
        trials.append(decode(Measurement, answer["trial"]))
    return trials, []


def _tried(ask: Ask, request: CheckupRequest) -> Answer:
    try:
        return ask("try_step", request)
    except RunError as error:
        return {"error": str(error)}


def _stored(folder: Path, hardware: Hardware, project: ProjectSettings) -> StoredSuite:
    entries = read(folder, hardware).entries
    kind = hardware.kind
    counts = {
        test: len(stored_values(STEP_MS, entry.runs, kind))
        for test, entry in entries.items()
    }
    return StoredSuite(
        file=str(path_of(folder, hardware)),
        tests=len(entries),
        thin=tuple(t for t, runs in sorted(counts.items()) if 0 < runs < ENOUGH_RUNS),
        acuity=acuity_of(
            dict.fromkeys(entries, ()),
            entries,
            kind,
            project.tolerance,
        ),
    )


def _asker(server: JobServer) -> Ask:
    def ask(name: str, request: CheckupRequest) -> Answer:
        entry = f"pytest_gpuperf.runner.checkup:{name}"
        job = Job(entry=entry, request=encode(request))
        answer: Answer = server.run(job, seconds=PATIENCE * request.seconds + 60)
        return answer

    return ask


def _options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Repeat the device where the command line named it: the project does not."""
    kind = arguments.device
    return (f"--gpuperf-device={kind.value}",) if kind else ()


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write(printed(lines))
    sys.stdout.flush()


def _kind(text: str) -> DeviceKind:
    try:
        return DeviceKind(text)
    except ValueError:
        msg = f"expected one of cuda, pretend, cpu, found {text!r}"
        raise argparse.ArgumentTypeError(msg) from None


def _runs(text: str) -> int:
    runs = int(text) if text.isdecimal() else 0
    if not LEAST_RUNS <= runs <= MOST_RUNS:
        msg = f"expected a number from {LEAST_RUNS} to {MOST_RUNS}, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return runs
