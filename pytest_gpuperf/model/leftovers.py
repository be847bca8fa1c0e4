"""Baselines of tests that are gone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Entries without a test; ``pruned`` if they were removed.

    ``obstacle`` says why a run that was to remove them could not know them.
    """

    entries: tuple[str, ...] = ()
    pruned: bool = False
    obstacle: str = ""

    @property
    def removed(self) -> tuple[str, ...]:
        """What is to be taken out of the file."""
        return self.entries if self.pruned else ()
