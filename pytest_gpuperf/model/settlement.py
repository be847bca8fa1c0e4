"""What other code said of a time that its baseline did not pass."""

from __future__ import annotations

from dataclasses import dataclass

from .commit_comparison import TimeChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """An A/B on this machine, from ``reference`` to the working tree.

    ``commit`` is what git understands; both are empty where no code was found to compare
    with. ``recorded`` says that the baseline was measured on that code. Without a
    ``time`` nothing was settled, and ``why`` says the reason.
    """

    reference: str = ""
    commit: str = ""
    recorded: bool = False
    engine: str = ""
    time: TimeChange | None = None
    why: str = ""
