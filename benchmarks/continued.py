"""A benchmark whose rows lie in a file that the next call continues."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar


Row = TypeVar("Row")


def load(path: Path, row: Callable[..., Row]) -> list[Row]:
    """Return the rows of *path*, a JSON object a line; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [row(**json.loads(line)) for line in lines]


def main(  # noqa: PLR0913, PLR0917  the parts of one benchmark
    about: str,
    results: Path,
    wanted: int,
    run: Callable[[int, float, Path], None],
    show: Callable[[Path], bool],
    counted: str = "comparisons",
) -> int:
    """Do what the command line says; return 1 where *show* finds a bar missed.

    *run* is given how many there are to be of what is *counted*, for how many minutes, and
    the file to continue.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("file", nargs="?", type=Path, default=results)
    parser.add_argument(f"--{counted}", dest="wanted", type=int, default=wanted)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=results)
    arguments = parser.parse_args()
    path: Path = arguments.file
    if arguments.command == "run":
        path = arguments.out
        run(arguments.wanted, arguments.minutes, path)
    return 0 if show(path) else 1
