"""How a process ended, and the end of its output."""

from __future__ import annotations

from pathlib import Path
from typing import Final


FATAL: Final = "Fatal Python error"
FATAL_LINES: Final = 6
EXIT_LAST_LINES: Final = 30


def death(code: int) -> str:
    """Say how a process ended, by its exit code, which is negative for a signal."""
    return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"


def last_words(output: Path) -> str:
    """Return what says most about a death: the fatal error's top, else the last lines."""
    text = _text(output)
    fatal = _fatal(text).splitlines()
    return "\n".join(fatal[:FATAL_LINES] or text.splitlines()[-EXIT_LAST_LINES:]) or (
        "it printed nothing"
    )


def last_stack(output: Path) -> str:
    """Return the fatal error whole, with the stack that faulthandler gives it."""
    return _fatal(_text(output))


def _fatal(text: str) -> str:
    _, fatal, stack = text.rpartition(FATAL)
    return fatal + stack if fatal else ""


def _text(output: Path) -> str:
    try:
        return output.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
