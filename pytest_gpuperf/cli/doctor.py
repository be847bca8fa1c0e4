"""``gpuperf doctor``: what can be measured here, and what cannot be judged."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from ..baselines.store import path_of, read
from ..errors import ErrorId, QuotedError, RunError
from ..judge.readings import stored_values
from ..model.baseline import ENOUGH_RUNS, Entry
from ..model.codec import decode
from ..model.environment import DeviceKind, Examination
from ..model.metrics import STEP_MS
from ..report.document import terminal
from ..report.screen.checkup import Labelled, checkup_blocks, stored_words
from ..runner.baseline_writer import acuity_of
from ..runner.fork_server import ForkServer, Job, preloaded_for
from ..settings import Settings
from ..visible import printed
from .shared_options import typed


REST: Final = None

WRONG: Final = 1
"""Exit code where something makes every number wrong."""

READ: Final = "pytest_gpuperf.plugin.parse_settings:read_settings"
EXAMINE: Final = "pytest_gpuperf.devices.machine:examine"
SECONDS: Final = 120.0
"""Conftest files may import heavy packages, and the first look at a GPU its libraries."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the device to look at."""
    parser.add_argument(
        "--device",
        "--gpuperf-device",
        dest="device",
        type=typed("one of cuda, simulated, cpu", DeviceKind),
        metavar="KIND",
        help="device to look at: cuda, simulated or cpu (default: as pytest --gpuperf)",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print what was found; 1 if any number measured here would be wrong."""
    try:
        with closing(ForkServer(preloaded_for(arguments.device))) as server:
            server.wait_until_ready()
            project = _project(server)
            found = _examined(server, arguments.device or project.device)
    except RunError as error:
        sys.stderr.write(f"gpuperf: {error}\n")
        return WRONG
    stored = _stored(found, project, _options(arguments))
    sys.stdout.write(printed(terminal(checkup_blocks(found, stored))))
    return WRONG if found.refusal else 0


def _project(server: ForkServer) -> Settings:
    """Return the settings of the project; raise ``UsageError`` if pytest cannot say."""
    answer = server.run(Job(entry=READ, request={}), SECONDS)
    if "error" in answer:
        msg = f"pytest cannot read the settings of this project: {answer['error']}"
        raise QuotedError(msg, ErrorId.GP109)
    return decode(Settings, answer["settings"])


def _examined(server: ForkServer, kind: DeviceKind | None) -> Examination:
    request = {
        "device": kind and kind.value,
        "script": os.environ.get("GPUPERF_SCRIPT"),
    }
    answer = server.run(Job(entry=EXAMINE, request=request), SECONDS)
    if "error" in answer:
        raise QuotedError(answer["error"], ErrorId.GP401)
    return decode(Examination, answer["examination"])


def _stored(
    found: Examination, project: Settings, options: Sequence[str]
) -> Iterator[Labelled]:
    hardware = found.environment.hardware
    folder = Path(os.path.relpath(project.baselines))
    entries = read(folder, hardware).entries
    return stored_words(
        str(path_of(folder, hardware)),
        len(entries),
        _thin(entries, hardware.kind),
        acuity_of(
            dict.fromkeys(entries, ()), entries, hardware.kind, project.tolerance
        ),
        options,
    )


def _thin(entries: Mapping[str, Entry], kind: DeviceKind) -> list[str]:
    """Return the tests whose time has too few runs to blame anybody."""
    runs = {t: len(stored_values(STEP_MS, e.runs, kind)) for t, e in entries.items()}
    return [test for test, count in sorted(runs.items()) if 0 < count < ENOUGH_RUNS]


def _options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Repeat the device where the command line named it: the project does not."""
    kind = arguments.device
    return (f"--gpuperf-device={kind.value}",) if kind else ()
