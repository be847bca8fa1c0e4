"""``--json`` of each command with an answer: one object on standard output, and no more."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any
from typing import Final


STANDARD_ERROR: Final = 2
"""Where the output of another program makes way to."""


def add_json_argument(parser: argparse._ActionsContainer, other: str = "") -> None:
    """Declare it; output of an *other* program, such as a script, makes way for it."""
    makes_way = f"; {other} output goes to standard error" if other else ""
    parser.add_argument(
        "--json", action="store_true", help=f"print one JSON object{makes_way}"
    )


def print_json(document: Mapping[str, Any]) -> None:
    """Print *document*."""
    sys.stdout.write(f"{json.dumps(document, indent=2)}\n")
