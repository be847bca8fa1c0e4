"""Keep what was measured: as pending, and as the new baselines where that was asked."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path

from .baselines.pending import write_pending
from .baselines.refresh import Change
from .baselines.refresh import changes
from .baselines.refresh import new_entry
from .baselines.store import update
from .errors import BaselineError
from .gate import Case
from .model.baseline import Baselines
from .model.baseline import Entry
from .settings import Settings


class Recorder:
    """Writes the baselines of one run beside the *old* ones."""

    def __init__(
        self, settings: Settings, old: Baselines, announce: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._old = old
        self._announce = announce

    def write_pending(self, cases: Sequence[Case]) -> Path | None:
        """Write what was measured; no verdict is lost where that cannot be written."""
        entries = self._entries(cases)
        if not entries:
            return None
        measured = Baselines(hardware=self._old.hardware, entries=entries)
        try:
            return write_pending(self._settings.artefacts, measured)
        except BaselineError as error:
            self._announce(f"gpuperf: {error}")
            return None

    def store(
        self, cases: Sequence[Case], pending: Path | None
    ) -> tuple[tuple[Change, ...], str]:
        """Refresh; return what changed, or why the baselines could not be written."""
        try:
            return self._refresh(cases), ""
        except BaselineError as error:
            kept = f"; what was measured is in {pending}" if pending else ""
            return (), f"{error}{kept}"

    def _refresh(self, cases: Sequence[Case]) -> tuple[Change, ...]:
        entries = self._entries(cases)
        if not entries:
            return ()
        hardware = self._old.hardware
        update(
            self._settings.baselines,
            hardware,
            entries,
            lock_folder=self._settings.artefacts,
        )
        old = {key: self._old.entries.get(key) for key in entries}
        before = {key: entry for key, entry in old.items() if entry is not None}
        return changes(
            Baselines(hardware=hardware, entries=before),
            Baselines(hardware=hardware, entries=entries),
        )

    def _entries(self, cases: Sequence[Case]) -> dict[str, Entry]:
        return {
            key: new_entry(self._old.entries.get(key), runs)
            for case in cases
            for key, runs in case.measurements.items()
        }
