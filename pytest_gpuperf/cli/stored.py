"""The stored baselines, as the commands name and read them."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..baselines.document import WAY_OUT
from ..baselines.document import loads
from ..errors import BaselineError
from ..model.baseline import Baselines


def add_baselines_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--baselines``, the committed folder."""
    parser.add_argument(
        "--baselines",
        type=Path,
        default=Path("baselines"),
        metavar="DIR",
        help="folder of the baselines (default: %(default)s)",
    )


def read_document(path: Path, way_out: str = WAY_OUT) -> Baselines:
    """Read one baseline file; raises ``BaselineError`` where it is none.

    *way_out* says what to do then.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read ({error}); expected a baseline file"
        raise BaselineError(msg) from error
    return loads(text, str(path), way_out)
