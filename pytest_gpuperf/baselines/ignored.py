"""Folders that git leaves alone."""

from __future__ import annotations

from pathlib import Path


def make_ignored(folder: Path) -> None:
    """Create *folder* with a ``.gitignore`` that covers all of it, unless it exists.

    Raises ``OSError``.
    """
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
