"""What several commands share: options, ``--json``, and the files that a run left."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from ..baselines.format import RESTORE_FILE, loads
from ..baselines.store import make_ignored, write
from ..errors import BaselineError, ErrorId, GpuperfError, UsageError
from ..files import read_regular_text
from ..model.baseline import Baselines
from ..model.run import RESULTS_NAME, Results
from ..report import json as results_json
from ..settings import ARTEFACTS


T = TypeVar("T")


def add_json_argument(parser: argparse._ActionsContainer, other: str = "") -> None:
    """Declare it; output of an *other* program, such as a script, makes way for it."""
    makes_way = f"; {other} output goes to standard error" if other else ""
    parser.add_argument(
        "--json", action="store_true", help=f"print one JSON object{makes_way}"
    )


def add_page_argument(parser: argparse._ActionsContainer) -> None:
    """Declare the file of the page, which is written besides what is printed."""
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write what was found as a page"
    )


PAGES: Final = {n: Path(ARTEFACTS) / f"{n}.html" for n in ("audit", "memory", "ab")}
"""The page that each command leaves for ``gpuperf report``."""


def leave_page(default: Path, asked: Path | None, page: Callable[[], str]) -> None:
    """Write the *page* to the file that was *asked* for, and to *default* if that works."""
    if asked is not None:
        write(asked, page())
    with suppress(OSError, GpuperfError):  # nobody asked for it
        make_ignored(default.parent)
        write(default, page())


def last_page(results: Path) -> Path | None:
    """Return the page of a command that ran after the run that left *results*, if one did."""
    left = max(filter(Path.is_file, PAGES.values()), key=_written, default=None)
    is_older = left and results.exists() and _written(results) > _written(left)
    return None if is_older else left


def _written(file: Path) -> int:
    return file.stat().st_mtime_ns


def print_json(document: Mapping[str, Any]) -> None:
    """Print *document*."""
    sys.stdout.write(f"{json.dumps(document, indent=2)}\n")


def typed(
    expected: str,
    read: Callable[[str], T],
    fits: Callable[[T], bool] = lambda _: True,
) -> Callable[[str], T]:
    """Return what reads a value that *fits*; *expected* says which in an error."""

    def parse(text: str) -> T:
        with suppress(ValueError):
            if fits(value := read(text)):
                return value
        msg = f"expected {expected}, found {text!r}"
        raise argparse.ArgumentTypeError(msg)

    return parse


def whole(text: str) -> int:
    """Read digits; raise ``ValueError`` for all else that Python reads as a number."""
    return int(text if text.isdecimal() else "")


count = typed("a whole number from 1 on", whole, lambda found: found > 0)


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--device``, which pytest knows under a longer name."""
    parser.add_argument(
        "--device",
        "--gpuperf-device",
        dest="device",
        metavar="KIND",
        help="device to measure on: cuda, simulated or cpu (default: as pytest --gpuperf)",
    )


def device_options(arguments: argparse.Namespace) -> list[str]:
    """Return the option that names the device to pytest, if one is named."""
    return [f"--gpuperf-device={arguments.device}"] if arguments.device else []


def passed_on(arguments: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Return what was typed after ``--``."""
    own, *typed = rest or ["--"]
    if own != "--":
        arguments.parser.error(f"unexpected {own}: arguments of pytest go after `--`")
    return typed


def pytest_arguments(arguments: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Return the arguments of pytest, in the order in which it reads them."""
    typed = passed_on(arguments, rest)
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    # As pytest itself orders them: what is typed comes last and wins.
    return [*added, *device_options(arguments), *typed]


def announce(text: str) -> None:
    """Print progress to standard error; standard output is for the result."""
    sys.stderr.write(f"gpuperf: {text}\n")
    sys.stderr.flush()


# The stored baselines, as the commands name and read them.


def add_baselines_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--baselines``, the committed folder."""
    parser.add_argument(
        "--baselines",
        type=Path,
        default=Path("baselines"),
        metavar="DIR",
        help="folder of the baselines (default: %(default)s)",
    )


def read_document(path: Path, way_out: str = RESTORE_FILE) -> Baselines:
    """Read one baseline file; raises ``BaselineError`` if it is none.

    *way_out* says what to do then.
    """
    try:
        text = read_regular_text(path)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read ({error}); expected a baseline file"
        raise BaselineError(msg, ErrorId.GP501) from error
    return loads(text, str(path), way_out)


def results_file(path: Path) -> Path:
    """Return the file of results that *path* names, or the one in that folder."""
    return path / RESULTS_NAME if path.is_dir() else path


def read_results(file: Path, absent: str) -> Results:
    """Read *file*; *absent* says why there may be none.

    Raises ``UsageError`` if it cannot be read or contains no results.
    """
    text = _text(file, results_json.EXPECTED_RESULTS, absent)
    return results_json.loads(text, str(file))


def _text(file: Path, expected: str, absent: str) -> str:
    try:
        return read_regular_text(file)
    except FileNotFoundError:
        msg = f"{file}: there is no such file; {absent}"
    except OSError as error:
        msg = f"{file}: cannot be read, {(error.strerror or str(error)).lower()}; {expected}"
    except UnicodeDecodeError:
        msg = f"{file}: not UTF-8 text; {expected}"
    raise UsageError(msg, ErrorId.GP527) from None
